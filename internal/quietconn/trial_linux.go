//go:build linux && !race && !386

package quietconn

import "time"

// trialEvery is the number of reads of which one goes the other way than the rest. It must not be much larger:
// while reads poll, goroutines are runnable on all processors, and then Go looks only every 10 ms whether anyone
// else on the network wants something. The one read that waits lets it look.
const trialEvery = 16

// trial finds out whether answers come sooner if reads poll for them. To put a processor to sleep and to wake it up
// takes some virtual machines longer than Redis takes for a decision. On others it is cheap, and polling only takes
// processor time, or even takes it from Redis.
type trial struct {
	waiting, polling time.Duration // usual times of answers that were waited for, and polled for; 0 if none was
	reads            int           // since one went the other way
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

// note notes how long an answer took. The usual time moves by a fixed part of itself towards each: so it approaches
// the median, and a few answers that took long for other reasons hardly matter.
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
