//go:build linux && !race && !386

package quietconn

import (
	"net"
	"runtime"
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
		soon   bool
		inARow int
		polls  bool
	}{
		"soon":                       {true, 0, true},
		"late":                       {false, 0, false},
		"soon, and some have polled": {true, pollsInARow - 1, true},
		"soon, but many have polled": {true, pollsInARow, false},
	} {
		p, fd, other := newPoller(t)
		polled := false
		for range 50 { // a busy machine may take away the processor for longer than a read polls
			p.begin(make([]byte, 1))
			p.began, p.soon, p.inARow = time.Now(), tc.soon, tc.inARow
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
		if p.began, p.soon = time.Now(), true; p.attempt(fd) {
			t.Error("something was read")
		}
	})
}

// Only readers of answers poll: when the next request comes says nothing of the one after it.
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
		"answers":  {wrap(plain, true).(*conn), true},
		"requests": {Wrap(plain).(*conn), false},
	} {
		soon := false
		for range 20 { // a busy machine reads few answers soon
			waits(t, tc.c)
			soon = soon || tc.c.reads.soon
		}
		if soon != tc.polls {
			t.Errorf("%s: reads poll: %v", name, soon)
		}
	}
}
