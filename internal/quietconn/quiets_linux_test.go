//go:build linux && !race && !386

package quietconn

import (
	"errors"
	"net"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

const quiets = true // connections are quiet here

// While a process asks Redis and waits for its answers, the monitor thread does not wake up each time. The
// system tells by the number of times that threads of this process have begun to wait.
func TestMonitorThreadSleeps(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	addr := redistest.Shared(t).Addr()
	plain, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	other, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	wrapped := Wrap(other)
	const rounds = 6 // in turns, so that both see the same of what else the machine does
	var ordinary, quiet float64
	for range rounds {
		ordinary += waits(t, plain) / rounds
		quiet += waits(t, notPolling{wrapped.(*conn)}) / rounds
	}
	// The one wait that each answer takes is that of the thread that reads it.
	if quiet-1 > (ordinary-1)/3 {
		t.Errorf("threads wait %.2f times for each answer on a quiet connection, %.2f times on another", quiet, ordinary)
	}
}

// notPolling is a quiet connection that waits for each answer, and does not poll.
type notPolling struct{ *conn }

func (c notPolling) Read(p []byte) (int, error) {
	c.reads.soon = false
	return c.conn.Read(p)
}

// waits returns how often a thread waits for each ping of Redis.
func waits(t *testing.T, c net.Conn) float64 {
	t.Helper()
	const pings = 1000
	before := voluntarySwitches(t)
	for range pings {
		ping(t, c)
	}
	return float64(voluntarySwitches(t)-before) / pings
}

func voluntarySwitches(t *testing.T) int64 {
	t.Helper()
	return int64(usage(t).Nvcsw)
}

// usage returns what this process has taken of the machine, by a call of which the scheduler is not told.
func usage(t *testing.T) (u syscall.Rusage) {
	t.Helper()
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return u
}

// The scheduler is told of a wait that ends if there was none for a while, and not of those that follow soon.
func TestSchedulerIsToldSeldom(t *testing.T) {
	g := newGuard()
	if !g.begin() {
		t.Fatal("the scheduler was not told of the first wait")
	}
	for began, before := time.Now(), time.Now(); time.Since(began) < 20*guardEvery; {
		now := time.Now()
		if g.begin() && time.Since(before) < guardEvery {
			t.Errorf("the scheduler was told again after %v", time.Since(before))
		}
		before = now
	}
	redistest.Eventually(t, "the timer stops", func() bool { return g.state.Load() == off })
	if !g.begin() {
		t.Error("the scheduler was not told after a pause")
	}
	g.timer.Stop()
}

// A goroutine that computes without a pause after an answer gives others their turn, also if the process has
// no timers and asked shortly before.
func TestOthersGetTheirTurn(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	plain, err := net.Dial("tcp", redistest.Shared(t).Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	c := Wrap(plain)
	const rounds, most, patience = 5, 200 * time.Millisecond, 5 * time.Second
	var held []time.Duration
	for range rounds {
		waits(t, c)
		var ran atomic.Bool
		began, before := time.Now(), usage(t)
		go ran.Store(true)
		for n := 0; !ran.Load() && (n%100_000 != 0 || time.Since(began) < patience); n++ { // rarely in the clock, where nothing is interrupted
		}
		after := usage(t)
		held = append(held, time.Duration(after.Utime.Nano()-before.Utime.Nano())) // a busy machine may take away the processor
	}
	if longest := slices.Max(held); longest > most {
		t.Errorf("others were held up while %v were computed, want 20 ms or a little more", held)
	}
}

// A socket that was set to wait does not: deadlines hold, and the scheduler is not held up.
func TestSocketThatWaits(t *testing.T) {
	const deadline = 10 * time.Millisecond
	quit := make(chan struct{})
	addr := listen(t, "tcp", "127.0.0.1:0", func(c net.Conn) {
		select {
		case <-quit:
		case <-time.After(2 * time.Second): // so that the test ends if the call waits
		}
		_ = c.Close()
	})
	defer close(quit)
	c := dial(t, addr, nil)
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var setErr error
	if err := raw.Control(func(fd uintptr) { setErr = syscall.SetNonblock(int(fd), false) }); err != nil || setErr != nil {
		t.Fatal(err, setErr)
	}
	began := time.Now()
	_ = c.SetDeadline(began.Add(deadline))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("reading ended with %v after %v", err, time.Since(began))
	}
	began = time.Now()
	_ = c.SetDeadline(began.Add(deadline))
	for data := make([]byte, 1<<20); err == nil; {
		_, err = c.Write(data)
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("writing ended with %v after %v", err, time.Since(began))
	}
}
