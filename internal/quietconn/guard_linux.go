//go:build linux && !race && !386

package quietconn

import (
	"math"
	"sync/atomic"
	"time"
)

// guardEvery is the longest time that the monitor thread sleeps while waits end without the scheduler's knowledge.
// Intervals of 20 ms and 50 ms take no less processor time.
const guardEvery = 10 * time.Millisecond

// guard is a timer that runs while waits end often and the scheduler is not notified of their ends. It keeps the monitor
// thread, which sleeps until the process's next timer, from sleeping for long. It stops by itself if no such wait
// has ended for a while. For waits that end rarely it is not started, and the scheduler is notified of each: waking up
// for the timer costs as much.
type guard struct {
	timer      *time.Timer
	state      atomic.Uint32
	notifiedAt atomic.Int64 // when the scheduler was last notified of the end of a wait, since epoch
}

// epoch is a time before any wait.
var epoch = time.Now()

// States of the guard.
const (
	off  uint32 = iota
	idle        // on, but no wait has ended since the timer last fired
	used        // on, and a wait has ended since
)

// theGuard is the process's guard. It is made at start, since a timer that is made within a bubble of
// testing/synctest belongs to the bubble.
var theGuard = newGuard()

func newGuard() *guard {
	g := &guard{}
	g.timer = time.AfterFunc(math.MaxInt64, g.fire)
	g.timer.Stop()
	g.notifiedAt.Store(-int64(guardEvery)) // before the process started, no wait ended
	return g
}

// begin is called when a wait has ended. It reports whether the scheduler must be notified.
func (g *guard) begin() (notify bool) {
	switch {
	case g.state.Load() == used, g.state.CompareAndSwap(idle, used):
		return false
	case inBubble(), !g.isOften():
		return true
	case g.state.CompareAndSwap(off, used):
		g.timer.Reset(guardEvery) // before the monitor thread goes to sleep again
		return true
	}
	return false // another call has just notified the scheduler
}

// isOften reports whether the scheduler was notified of the end of another wait shortly before.
func (g *guard) isOften() bool {
	now := int64(time.Since(epoch))
	return now-g.notifiedAt.Swap(now) < int64(guardEvery)
}

// inBubble reports whether it is called in a bubble of testing/synctest. The timer would be set by the bubble's
// clock, which starts in the year 2000, and would not fire for decades. In a bubble, times have no monotonic
// reading.
func inBubble() bool {
	now := time.Now()
	return now == now.Round(0)
}

// fire runs the timer again if it was needed since it last fired.
func (g *guard) fire() {
	if !g.state.CompareAndSwap(idle, off) { // it is used, and stays so until this
		g.state.Store(idle)
		g.timer.Reset(guardEvery)
	}
}
