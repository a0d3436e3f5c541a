//go:build linux && !race && !386

package quietconn

import (
	"net"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

// newPoller returns a poller, a socket for it, and the socket at the other end.
func newPoller(t *testing.T) (p *poller, fd uintptr, other int) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = syscall.Close(fds[0]), syscall.Close(fds[1]) })
	return &poller{transfer: transfer{trap: syscall.SYS_RECVFROM}}, uintptr(fds[0]), fds[1]
}

// A read polls if the last answer came soon and polling pays. Meanwhile other goroutines run; here, one of them
// sends the answer.
func TestReadsPollForAnswersThatComeSoon(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	defer awaiting.Store(0)
	pays := trial{waiting: 20 * time.Microsecond, polling: 10 * time.Microsecond}
	for name, tc := range map[string]struct {
		last   time.Duration
		trial  trial
		others int32 // reads that await an answer
		polls  bool
	}{
		"soon":                      {pollFor - 1, pays, 0, true},
		"late":                      {pollFor, pays, 0, false},
		"first":                     {0, pays, 0, false},
		"polling brings nothing":    {pollFor - 1, trial{waiting: pays.polling, polling: pays.polling}, 0, false},
		"what it brings is unknown": {pollFor - 1, trial{waiting: pays.waiting}, 0, false},
		"others await answers":      {pollFor - 1, pays, 1, false},
	} {
		p, fd, other := newPoller(t)
		awaiting.Store(1 + tc.others) // of one processor
		read := false
		for range 50 { // a busy machine may take the processor away for longer than a read polls
			p.begin(make([]byte, 1))
			p.began, p.last, p.trial = time.Now(), tc.last, tc.trial
			sent := make(chan error, 1)
			go func() {
				_, err := syscall.Write(other, []byte("a"))
				sent <- err
			}()
			read = p.attempt(fd)
			if err := <-sent; err != nil {
				t.Fatal(err)
			}
			if read && !p.waited { // this goroutine was interrupted, and its first attempt found the answer
				read = false
				continue
			}
			if p.polled != tc.polls {
				t.Fatalf("%s: polled: %v", name, p.polled)
			}
			if read {
				break
			}
			if !p.attempt(fd) {
				t.Fatalf("%s: an answer that has come is not read", name)
			}
		}
		if read != tc.polls {
			t.Errorf("%s: read by polling: %v", name, read)
		}
	}
}

// Reads poll if that is faster by a quarter, and otherwise wait. Every 16th read does the opposite.
func TestTrialFindsTheFasterWay(t *testing.T) {
	for name, tc := range map[string]struct {
		waiting, polling time.Duration
		polls            bool
	}{
		"polling is faster":        {60 * time.Microsecond, 30 * time.Microsecond, true},
		"polling is slower":        {60 * time.Microsecond, 80 * time.Microsecond, false},
		"polling is hardly faster": {60 * time.Microsecond, 55 * time.Microsecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			var tr trial
			const reads = 100 * trialEvery
			polled := 0
			for n := range 2 * reads {
				polls := tr.polls()
				took := tc.waiting
				if polls {
					took = tc.polling
				}
				if n%5 == 0 {
					took += time.Duration(n%7) * 100 * time.Microsecond // a delay with another cause
				}
				tr.note(polls, took)
				if n >= reads && polls { // the first reads find out which way is faster
					polled++
				}
			}
			want := reads / trialEvery
			if tc.polls {
				want = reads - want
			}
			if polled != want {
				t.Errorf("%d of %d reads polled, want %d", polled, reads, want)
			}
		})
	}
}

// Whether polling pays changes with the load, and reads follow that change.
func TestTrialFollows(t *testing.T) {
	var tr trial
	for change, polling := range []time.Duration{20, 100, 20} {
		polled := 0
		const reads = 1000
		for n := range reads {
			polls := tr.polls()
			took := 60 * time.Microsecond
			if polls {
				took = polling * time.Microsecond
			}
			tr.note(polls, took)
			if n >= reads/2 && polls {
				polled++
			}
		}
		if polls := polled > reads/4; polls != (polling < 60) {
			t.Errorf("change %d: %d of the last %d reads polled", change, polled, reads/2)
		}
	}
}

// A read that polls ends even if nothing comes and the clock stands still.
func TestPollingEnds(t *testing.T) {
	p, fd, _ := newPoller(t)
	synctest.Test(t, func(t *testing.T) {
		p.begin(make([]byte, 1))
		p.began, p.last, p.trial = time.Now(), pollFor-1, trial{waiting: 2, polling: 1}
		if p.attempt(fd) || !p.polled {
			t.Errorf("something was read, or nothing polled for: %v", p.polled)
		}
	})
}

// Only reads of answers poll. The time at which one request comes says nothing about the next one.
func TestRequestsAreNotPolledFor(t *testing.T) {
	plain, err := net.Dial("tcp", redistest.Shared(t).Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	for name, tc := range map[string]struct {
		c     *conn
		polls bool
	}{
		"answers":  {Client(plain).(*conn), true},
		"requests": {Server(plain).(*conn), false},
	} {
		for range 20 { // on a busy machine few answers come soon
			waits(t, tc.c)
		}
		if polls := tc.c.reads.trial.polling > 0; polls != tc.polls {
			t.Errorf("%s: reads have polled: %v", name, polls)
		}
	}
}

// A client's read awaits an answer if something was written since the last read. A subscriber's reads do not.
func TestReadsThatAwaitAnswers(t *testing.T) {
	servers := make(chan net.Conn)
	addr := listen(t, "tcp", "127.0.0.1:0", func(c net.Conn) { servers <- c })
	client := dial(t, addr, nil).(*conn)
	server := Server(<-servers).(*conn)
	write := func(c *conn) {
		t.Helper()
		if _, err := c.Write([]byte("a")); err != nil {
			t.Error(err)
		}
	}
	var reading sync.WaitGroup
	read := func() { _, _ = client.Read(make([]byte, 1)) }

	write(client)
	reading.Go(read)
	redistest.Eventually(t, "the read awaits its answer", func() bool { return awaiting.Load() == 1 })
	write(server)
	reading.Wait()
	if n := awaiting.Load(); n != 0 {
		t.Errorf("%d reads await answers that have come", n)
	}
	write(server)
	if read(); client.asked.Load() || server.asked.Load() {
		t.Error("an answer is awaited although nothing was asked")
	}
}
