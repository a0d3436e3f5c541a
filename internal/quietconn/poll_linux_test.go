//go:build linux && !race && !386

package quietconn

import (
	"io"
	"net"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

// newPoller returns a poller, a socket for it, and the one at its other end.
func newPoller(t *testing.T) (p *poller, fd uintptr, other int) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = syscall.Close(fds[0]), syscall.Close(fds[1]) })
	return &poller{transfer: transfer{trap: syscall.SYS_RECVFROM}}, uintptr(fds[0]), fds[1]
}

// A read polls if the last answer came soon, unless many in a row have done so. Meanwhile other goroutines run, of
// which one sends the answer here.
func TestReadsPollForAnswersThatComeSoon(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for name, tc := range map[string]struct {
		took   time.Duration
		inARow int
		polls  bool
	}{
		"soon":                       {-time.Hour, 0, true}, // so that it is soon on a busy machine, too
		"late":                       {2 * pollFor, 0, false},
		"soon, and some have polled": {-time.Hour, pollsInARow - 1, true},
		"soon, but many have polled": {-time.Hour, pollsInARow, false},
	} {
		p, fd, other := newPoller(t)
		polled := false
		for range 50 { // a busy machine may take away the processor for longer than a read polls
			p.begin(make([]byte, 1))
			p.waited, p.began = true, time.Now().Add(-tc.took)
			_, _ = p.end("read", nil)
			p.begin(make([]byte, 1))
			p.inARow = tc.inARow
			sent := make(chan error, 1)
			go func() {
				_, err := syscall.Write(other, []byte("a"))
				sent <- err
			}()
			polled = p.attempt(fd)
			if err := <-sent; err != nil {
				t.Fatal(err)
			}
			if polled != (p.inARow == tc.inARow+1) || !polled && p.inARow != 0 {
				t.Fatalf("%s: polled: %v, in a row then: %d", name, polled, p.inARow)
			}
			if polled {
				break
			}
			if !p.attempt(fd) {
				t.Fatalf("%s: an answer that has come is not read", name)
			}
		}
		if polled != tc.polls {
			t.Errorf("%s: a read polls: %v", name, polled)
		}
	}
}

// A read that polls comes to an end even if nothing comes and the clock stands still.
func TestPollingEnds(t *testing.T) {
	p, fd, _ := newPoller(t)
	synctest.Test(t, func(t *testing.T) {
		p.begin(make([]byte, 1))
		if p.soon = true; p.attempt(fd) {
			t.Error("something was read")
		}
	})
}

// While a goroutine asks Redis without a pause, and so has polled for most answers, others notice soon what comes
// for them from the network, although there is only one processor. Go itself would look every 10 ms.
func TestOthersHearFromTheNetwork(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	addr := redistest.Shared(t).Addr()
	var conns [2]net.Conn
	for i := range conns {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns[i] = c
	}
	c, other := Wrap(conns[0]), conns[1]
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-end:
				return
			default:
				ping(t, c)
			}
		}
	}()
	defer func() { close(end); <-ended }()
	const most, attempts = 7 * time.Millisecond, 3
	var medians []time.Duration // of a busy machine, the best counts
	for range attempts {
		took := make([]time.Duration, 60)
		for i := range took {
			began := time.Now()
			ask(t, other, "BLPOP nothing 0.001", "*-1") // is answered after 2 ms
			took[i] = time.Since(began)
		}
		slices.Sort(took)
		if medians = append(medians, took[len(took)/2]); took[len(took)/2] < most {
			return
		}
	}
	t.Errorf("what comes after 2 ms is noticed after %v", medians)
}

func ping(t *testing.T, c net.Conn) { t.Helper(); ask(t, c, "PING", "+PONG") }

func ask(t *testing.T, c net.Conn, command, want string) {
	t.Helper()
	if _, err := c.Write([]byte(command + "\r\n")); err != nil {
		t.Error(err)
		return
	}
	answer := make([]byte, len(want)+len("\r\n"))
	if _, err := io.ReadFull(c, answer); err != nil || string(answer) != want+"\r\n" {
		t.Errorf("%s was answered %q, error %v", command, answer, err)
	}
}
