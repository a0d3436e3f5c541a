//go:build linux && !race && !386

package quietconn

import (
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// pollFor is how long a read polls before it waits. A read polls only if the last answer took less than that,
	// too. A Redis that others keep busy, or that is on another machine, takes longer to answer, and then reads do
	// not poll.
	pollFor = 200 * time.Microsecond
	// pollsAtMost bounds the polls of a read where the clock stands still, as in a bubble of testing/synctest.
	pollsAtMost = 512
	// yieldEvery is the number of polls after which other goroutines get their turn. Yielding more often costs
	// more: each time, Go wakes up another thread if it may use more than one.
	yieldEvery = 8
)

// awaiting is the number of reads that wait for an answer to what was written on their connections. While there are
// more of them than processors, none polls: a processor that polls does not look for the answers of the others.
var awaiting atomic.Int32

// poller is the reading side of a connection. A read that finds nothing either waits in Go's network poller at
// once, or polls for a moment before that, whichever has been faster (see trial).
type poller struct {
	transfer
	began  time.Time     // when the current read began
	polled bool          // the current read has polled
	last   time.Duration // how long the last awaited answer took
	trial  trial
}

// attempt reads, or polls. It returns false if nothing came; it is called again when something has come.
func (p *poller) attempt(fd uintptr) (done bool) {
	if p.waited {
		return p.transfer.attempt(fd) // called by the network poller, or after other goroutines had their turn
	}
	if p.transfer.attempt(fd) {
		return true
	}
	soon := p.last > 0 && p.last < pollFor
	if p.polled = soon && awaiting.Load() <= int32(runtime.GOMAXPROCS(0)) && p.trial.polls(); !p.polled {
		return false
	}
	for n := 1; n <= pollsAtMost; n++ {
		_, _, _ = syscall.RawSyscall(syscall.SYS_SCHED_YIELD, 0, 0, 0) // Redis may be waiting for this processor
		if p.transfer.attempt(fd) {
			return true
		}
		if n%yieldEvery > 0 {
			continue
		}
		if time.Since(p.began) > pollFor {
			break
		}
		runtime.Gosched()
	}
	return false
}

// answered records how long an answer took for which the read had to wait.
func (p *poller) answered(took time.Duration) {
	p.trial.note(p.polled, took)
	p.last = took
}
