//go:build linux && !race && !386

package quietconn

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

const quiets = true // whether connections are quiet on this system

// While a process asks Redis and waits for its answers, the monitor thread does not wake up each time. The test
// measures how often threads of this process have begun to wait, which the system counts.
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
	wrapped := Server(other)
	const rounds = 6 // in turns, so that the rest of the machine disturbs both equally
	var ordinary, quiet float64
	for range rounds {
		ordinary += waits(t, plain) / rounds
		quiet += waits(t, wrapped) / rounds
	}
	// For each answer, the thread that reads it must wait once.
	if quiet-1 > (ordinary-1)/3 {
		t.Errorf("threads wait %.2f times for each answer on a quiet connection, %.2f times on another", quiet, ordinary)
	}
}

// waits returns how often threads wait per ping of Redis.
func waits(t *testing.T, c net.Conn) float64 {
	t.Helper()
	const pings = 1000
	answer := make([]byte, len("+PONG\r\n"))
	before := voluntarySwitches(t)
	for range pings {
		if _, err := c.Write([]byte("PING\r\n")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, answer); err != nil {
			t.Fatal(err)
		}
	}
	return float64(voluntarySwitches(t)-before) / pings
}

func voluntarySwitches(t *testing.T) int64 {
	t.Helper()
	return int64(usage(t).Nvcsw)
}

// usage returns the resources that this process has used, by a call of which the scheduler is not told.
func usage(t *testing.T) (u syscall.Rusage) {
	t.Helper()
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return u
}

// The scheduler is notified that a wait has ended if none had ended for a while, and is not notified of waits that follow
// soon.
func TestSchedulerIsToldSeldom(t *testing.T) {
	g := newGuard()
	for range 2 { // the second one comes soon after the first, and starts the timer
		if !g.begin() {
			t.Fatal("the scheduler was not told of the first waits")
		}
	}
	for began, before := time.Now(), time.Now(); time.Since(began) < 20*guardEvery; {
		now := time.Now()
		if g.begin() {
			if pause := time.Since(before); pause < guardEvery {
				t.Errorf("the scheduler was told again after %v", pause)
			}
			g.begin() // this process stood still, and so the timer stopped: it starts again
		}
		before = now
	}
	redistest.Eventually(t, "the timer stops", func() bool { return g.state.Load() == off })
	if !g.begin() {
		t.Error("the scheduler was not told after a pause")
	}
	g.timer.Stop()
}

// For waits that end seldom no timer runs, and the scheduler is notified of each.
func TestNoTimerForWaitsThatEndSeldom(t *testing.T) {
	g := newGuard()
	for range 3 {
		g.notifiedAt.Add(-int64(guardEvery)) // so long ago was the last one
		if !g.begin() || g.state.Load() != off {
			t.Errorf("the scheduler was not told of the wait, or the timer runs (state %d)", g.state.Load())
		}
	}
}

// A wait that ends in a bubble of testing/synctest does not set the timer by the bubble's clock. The timer would
// not fire for decades, and until then the scheduler would be told of nothing.
func TestTheGuardInABubble(t *testing.T) {
	g := newGuard()
	synctest.Test(t, func(t *testing.T) {
		for range 2 {
			if !g.begin() {
				t.Error("the scheduler was not told of a wait in a bubble")
			}
		}
	})
	redistest.Eventually(t, "the timer stops", func() bool { return g.state.Load() == off })
	if !g.begin() {
		t.Error("the scheduler was not told of the first wait after it")
	}
	g.timer.Stop()
}

// A goroutine that computes without a pause after an answer gives others their turn, even if the process has no
// timers and asked shortly before.
func TestOthersGetTheirTurn(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	plain, err := net.Dial("tcp", redistest.Shared(t).Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	c := Server(plain)
	const rounds, most, patience = 5, 200 * time.Millisecond, 5 * time.Second
	var held []time.Duration
	for range rounds {
		waits(t, c)
		var ran atomic.Bool
		began, before := time.Now(), usage(t)
		go ran.Store(true)
		for n := 0; !ran.Load() && (n%100_000 != 0 || time.Since(began) < patience); n++ { // the clock is read rarely: the reading is not interrupted
		}
		after := usage(t)
		held = append(held, time.Duration(after.Utime.Nano()-before.Utime.Nano())) // excludes time without the processor
	}
	if longest := slices.Max(held); longest > most {
		t.Errorf("others were held up while %v were computed, want 20 ms or a little more", held)
	}
}

// The check by which go-redis finds out whether the server has closed a connection reads the socket only if there is
// something to read, which it learns without telling the scheduler.
func TestSocketIsReadOnlyIfThereIsSomethingToRead(t *testing.T) {
	ask := make(chan func(net.Conn))
	c := dial(t, listen(t, "tcp", "127.0.0.1:0", func(c net.Conn) {
		for do := range ask {
			do(c)
		}
	}), nil)
	defer close(ask)
	socket, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	isRead := func() (read bool) {
		if err := socket.Read(func(uintptr) bool { read = true; return true }); err != nil {
			t.Fatal(err)
		}
		return read
	}
	if isRead() {
		t.Error("the socket was read before anything had come")
	}
	ask <- func(c net.Conn) { _, _ = c.Write([]byte("x")) }
	redistest.Eventually(t, "the socket is read when a byte has come", isRead)
	if n, err := c.Read(make([]byte, 2)); n != 1 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	if isRead() {
		t.Error("the socket was read after all that had come")
	}
	ask <- func(c net.Conn) { _ = c.Close() }
	redistest.Eventually(t, "the socket is read when the server has closed it", isRead)
}

// What came before a read's deadline is read, even if the process stood still and the read goes on only after the deadline.
// Without anything to read, the deadline ends the read. The server's side ends reads by a deadline in the past.
func TestWhatHasComeIsReadAfterTheDeadline(t *testing.T) {
	ask := make(chan bool)
	peer := make(chan net.Conn, 1)
	client := dial(t, listen(t, "tcp", "127.0.0.1:0", func(c net.Conn) {
		peer <- c
		for range ask {
			_, _ = c.Write([]byte("x"))
		}
	}), nil)
	defer close(ask)
	if err := client.SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 2)
	if n, err := client.Read(b); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%d bytes, %v, though nothing has come", n, err)
	}
	ask <- true
	redistest.Eventually(t, "the byte is read", func() bool {
		n, err := client.Read(b)
		if n == 0 && !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
		return n == 1 && err == nil
	})

	server := Server(<-peer)
	if _, err := client.Write([]byte("y")); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, "the byte can be read", func() (come bool) {
		socket, err := server.(syscall.Conn).SyscallConn()
		if err == nil {
			err = socket.Read(func(uintptr) bool { come = true; return true })
		}
		return err == nil && come
	})
	if err := server.SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if n, err := server.Read(b); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the server's side: %d bytes, %v", n, err)
	}
}

// Reads and writes do not block on a socket that was set to block: deadlines hold, and the scheduler is not held
// up.
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

// others is the number of goroutines of keepBusy.
const others = 10

// keepBusy starts goroutines that compute and take turns on the only processor until the test ends. It returns the
// counter of their turns.
func keepBusy(t *testing.T) *atomic.Int64 {
	t.Helper()
	processors := runtime.GOMAXPROCS(1)
	turns := new(atomic.Int64)
	var stop atomic.Bool
	var running sync.WaitGroup
	for range others {
		running.Go(func() {
			for !stop.Load() {
				for began := time.Now(); time.Since(began) < 2*busyTurn; {
				}
				turns.Add(1)
				runtime.Gosched()
			}
		})
	}
	t.Cleanup(func() {
		stop.Store(true)
		running.Wait()
		runtime.GOMAXPROCS(processors)
	})
	return turns
}

// While other goroutines occupy the processors, an answer is read after one of their turns, and not only when the
// monitor thread looks for it.
func TestAnswersAreReadBetweenTurns(t *testing.T) {
	accepted := make(chan net.Conn, 1)
	c := dial(t, listen(t, "tcp", "127.0.0.1:0", func(c net.Conn) { accepted <- c }), nil)
	server, err := (<-accepted).(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	reads := &c.(*conn).reads
	reads.last, reads.polled = slowWait+1, true
	turns := keepBusy(t)
	for judged := 0; judged < 20; {
		read := make(chan int64)
		began := time.Now()
		go func() {
			if _, err := c.Read(make([]byte, 1)); err != nil {
				t.Error(err)
			}
			read <- turns.Load()
		}()
		for begun := turns.Load(); turns.Load() < begun+2*others; runtime.Gosched() {
		}
		answered := turns.Load()
		if err := server.Control(func(fd uintptr) { _, _ = syscall.Write(int(fd), []byte{1}) }); err != nil {
			t.Fatal(err)
		}
		took := <-read - answered
		if time.Since(began) > lookFor/2 {
			continue // this process was stopped, and the reader may have stopped looking
		}
		judged++
		if took > 2*others {
			t.Errorf("an answer was read after %d turns of %d others", took, others)
		}
	}
	if reads.trial.polling > 0 {
		t.Error("answers that were not polled for count as such")
	}
}

// A read between the turns of others ends at its deadline, or when the connection is closed.
func TestReadsBetweenTurnsEnd(t *testing.T) {
	addr := listen(t, "tcp", "127.0.0.1:0", func(net.Conn) {})
	for name, test := range map[string]struct {
		end  func(c net.Conn)
		want error
	}{
		"deadline": {func(c net.Conn) { _ = c.SetReadDeadline(time.Now().Add(5 * time.Millisecond)) }, os.ErrDeadlineExceeded},
		"closed":   {func(c net.Conn) { _ = c.Close() }, net.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, addr, nil)
			c.(*conn).reads.last = slowWait + 1
			keepBusy(t)
			result := make(chan error, 1)
			go func() { _, err := c.Read(make([]byte, 1)); result <- err }()
			runtime.Gosched()
			test.end(c)
			select {
			case err := <-result:
				if !errors.Is(err, test.want) {
					t.Errorf("error %v, want %v", err, test.want)
				}
			case <-time.After(10 * time.Second):
				t.Error("still reading")
			}
		})
	}
}

// Readers for which no data come do not keep each other looking, however many there are.
func TestReadersDoNotKeepProcessorsBusy(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	addr := listen(t, "tcp", "127.0.0.1:0", func(net.Conn) {})
	var all []net.Conn
	var running sync.WaitGroup
	for range 320 {
		c := dial(t, addr, nil)
		c.(*conn).reads.last = slowWait + 1
		all = append(all, c)
	}
	processorTime := func() time.Duration {
		u := usage(t)
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := processorTime()
	var begun atomic.Int64
	for _, c := range all {
		running.Go(func() {
			begun.Add(1)
			_, _ = c.Read(make([]byte, 1))
		})
	}
	redistest.Eventually(t, "no reader looks any more", func() bool { return int(begun.Load()) == len(all) && looking.Load() == 0 })
	took := processorTime() - before
	for _, c := range all {
		_ = c.Close()
	}
	running.Wait()
	if took > lookFor/8 {
		t.Errorf("they took %v of the processor until they stopped looking", took)
	}
}
