//go:build linux && !race && !386

package quietconn

import (
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// slowWait is the time from which on an answer has taken long: more than Redis takes for a batch.
	slowWait = time.Millisecond
	// busyTurn is the duration of a turn of the other goroutines from which on the processors count as busy.
	busyTurn = 50 * time.Microsecond
	// At most maxLooking readers look for their answers between turns at the same time, each for at most lookFor.
	// Otherwise a hundred of them would keep the processors busy by themselves, and continue because of that.
	maxLooking = 16
	lookFor    = 100 * time.Millisecond
)

// looking is the number of readers that look for their answers between the turns of others.
var looking atomic.Int32

// read attempts to read until an attempt need not wait.
func (c *conn) read() error {
	if c.asked.Swap(false) {
		awaiting.Add(1)
		defer awaiting.Add(-1)
	}
	started := time.Now()
	c.reads.began, c.reads.polled = started, false
	done, err := false, error(nil)
	if c.reads.last > slowWait {
		if looking.Add(1) <= maxLooking {
			done, err = c.readBetweenTurns(started.Add(lookFor))
		}
		looking.Add(-1)
	}
	if !done {
		err = c.raw.Read(c.reads.try)
	}
	if c.reads.waited && c.answers {
		c.reads.answered(time.Since(started))
	}
	return err
}

// readBetweenTurns attempts to read after each turn of the runnable goroutines, for as long as there are any, until
// the given time. It reports whether the read is done; otherwise the network poller must wait for it.
func (c *conn) readBetweenTurns(until time.Time) (done bool, err error) {
	for now := time.Now(); now.Before(until); {
		if err := c.raw.Read(c.look); err != nil || c.reads.errno != syscall.EAGAIN {
			return true, err
		}
		before := now
		runtime.Gosched()
		if now = time.Now(); now.Sub(before) < busyTurn {
			break
		}
	}
	return false, nil
}
