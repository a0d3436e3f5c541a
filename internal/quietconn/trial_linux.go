//go:build linux && !race && !386

package quietconn

import "time"

// trialEvery says that one of as many reads goes the other way than the rest: it waits where they poll, or the
// reverse. It must not be much larger:
// while reads poll, goroutines are runnable on all processors, and then Go checks only every 10 ms whether there is
// other data on the network. The one read that waits lets Go check.
const trialEvery = 16

// trial finds out whether answers come sooner if reads poll for them. In some virtual machines, putting a processor
// to sleep and waking it up takes longer than Redis takes for a decision. In others it is cheap, and polling only
// takes processor time, or even takes it from Redis.
type trial struct {
	waiting, polling time.Duration // usual times of answers that were waited for and polled for; 0: none yet
	reads            int           // since one read went the other way
}

// polls reports whether the next read polls.
func (t *trial) polls() bool {
	pays := t.polling > 0 && t.polling < t.waiting-t.waiting/4
	if t.reads++; t.reads >= trialEvery {
		t.reads = 0
		return !pays
	}
	return pays
}

// note records how long an answer took. The usual time moves by a fixed part of itself toward each new time. So it
// approaches the median, and a few answers that took long for other reasons hardly matter.
func (t *trial) note(polled bool, took time.Duration) {
	usual := &t.waiting
	if polled {
		usual = &t.polling
	}
	switch {
	case *usual == 0:
		*usual = took
	case took < *usual:
		*usual -= *usual / 16
	default:
		*usual += *usual / 16
	}
}
