//go:build linux && !race && !386

package quietconn

import (
	"runtime"
	"syscall"
	"time"
)

const (
	// pollFor is how long a read polls before it waits, and how soon an answer must have come last time for
	// that. To put a processor to sleep and to wake it up takes a virtual machine 20 to 30 µs, and the one who
	// wakes it up 10 µs more. A Redis that others keep busy, or that is on another machine, takes longer to
	// answer: then nothing is polled.
	pollFor = 100 * time.Microsecond
	// pollsAtMost bounds the polls of a read where the clock stands still, as in a bubble of testing/synctest.
	pollsAtMost = 256
	// yieldEvery is the number of polls after which other goroutines get their turn. More often is dearer: each
	// time, Go wakes up another thread if it may use more than one.
	yieldEvery = 8
	// A read waits once after pollsInARow that polled with success: while goroutines are runnable on all of its
	// processors, Go looks only every 10 ms whether anyone else on the network wants something.
	pollsInARow = 16
)

// poller is the reading side of a connection. A read that finds nothing polls for a moment, if the answer before
// came soon; otherwise it waits in Go's network poller. So a process and a Redis that share a machine, and
// answer each other within microseconds, need not wake each other up each time.
type poller struct {
	transfer
	began  time.Time // when the current read began
	soon   bool      // the last answer that was waited for came within pollFor
	inARow int       // reads that have polled with success since one waited
}

// attempt reads, or polls. It returns false if nothing came; then it is called again when something has.
func (p *poller) attempt(fd uintptr) (done bool) {
	if p.waited {
		return p.transfer.attempt(fd) // the network poller has called it, or other goroutines have had their turn
	}
	if p.transfer.attempt(fd) {
		return true
	}
	if !p.soon || p.inARow >= pollsInARow {
		p.inARow = 0
		return false
	}
	for n := 1; n <= pollsAtMost; n++ {
		_, _, _ = syscall.RawSyscall(syscall.SYS_SCHED_YIELD, 0, 0, 0) // Redis may be waiting for this processor
		if p.transfer.attempt(fd) {
			p.inARow++
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
	p.inARow = 0
	return false
}
