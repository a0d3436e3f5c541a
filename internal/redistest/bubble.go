package redistest

import (
	"context"
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/standin"
)

// lateAnswers is a connection on which answers come late by the given number of ns, unless its deadline comes
// first.
type lateAnswers struct {
	net.Conn
	late     *atomic.Int64
	deadline time.Time // 0: none
}

func (c *lateAnswers) SetReadDeadline(t time.Time) error {
	c.deadline = t
	return c.Conn.SetReadDeadline(t)
}

func (c *lateAnswers) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	late := time.Duration(c.late.Load())
	if left := time.Until(c.deadline); !c.deadline.IsZero() && left < late {
		time.Sleep(left)
		return 0, os.ErrDeadlineExceeded
	}
	time.Sleep(late)
	return n, err
}

// Bubble provides a test in a bubble of testing/synctest with a stand-in for Redis. In a bubble, time passes only
// while all goroutines wait, so nothing is late because the machine is busy. Unlike Redis, the stand-in runs a
// client's own commands even while it runs the script.
type Bubble struct {
	Late atomic.Int64 // how late answers come, in ns

	server *standin.Server
}

// InBubble runs a test in a bubble. On a 32-bit platform, which the stand-in does not support, the test is skipped.
func InBubble(t *testing.T, test func(t *testing.T, b *Bubble)) {
	t.Helper()
	if strconv.IntSize < 64 {
		t.Skip("the stand-in needs a 64-bit platform")
	}
	synctest.Test(t, func(t *testing.T) {
		server, err := standin.Start()
		if err != nil {
			t.Fatal(err)
		}
		b := &Bubble{server: server}
		t.Cleanup(func() {
			time.Sleep(time.Duration(b.Late.Load())) // goroutines that wait for answers must end with the bubble
			server.Close()
		})
		test(t, b)
	})
}

// Client returns a client of the stand-in.
func (b *Bubble) Client(t *testing.T, change ...func(*redis.Options)) *redis.Client {
	connect := func(o *redis.Options) {
		o.Dialer = func(context.Context, string, string) (net.Conn, error) {
			conn, err := b.server.Dial()
			return &lateAnswers{Conn: conn, late: &b.Late}, err
		}
	}
	client := newClient(standin.Addr, append([]func(*redis.Options){connect}, change...)...)
	t.Cleanup(func() { _ = client.Close() })
	return client
}
