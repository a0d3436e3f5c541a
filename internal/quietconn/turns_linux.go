//go:build linux && !race && !386

package quietconn

import (
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// slowWait is the time from which an answer has taken long: more than Redis takes for a batch.
	slowWait = time.Millisecond
	// busyTurn is the time from which a turn of the other goroutines shows that the processors are busy.
	busyTurn = 50 * time.Microsecond
	// mostLooking readers look between the turns of others at the same time, and each does so for lookFor at
	// most. Otherwise a hundred of them would keep the processors busy by themselves, and go on because of that.
	mostLooking = 16
	lookFor     = 100 * time.Millisecond
)

// looking is how many readers look between the turns of others.
var looking atomic.Int32

// read makes attempts to read until one need not wait.
func (c *conn) read() error {
	started := time.Now()
	c.reads.began, c.reads.polled = started, false
	done, err := false, error(nil)
	if c.reads.last > slowWait {
		if looking.Add(1) <= mostLooking {
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

// readBetweenTurns makes an attempt to read after each turn of the goroutines that can run, for as long as there
// are any, until the given time. It reports whether that was the end of reading; otherwise the poller must wait.
//
// A processor looks at the poller when it has nothing to run. While all are busy only the monitor thread does, every
// 10 ms.
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
