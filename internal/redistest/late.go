package redistest

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// lateAnswers is a connection on which answers come late, by so many ns.
type lateAnswers struct {
	net.Conn
	late *atomic.Int64
}

func (c lateAnswers) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	time.Sleep(time.Duration(c.late.Load()))
	return n, err
}

// LateClient returns a client whose answers come late, by as many ns as are stored in the second
// result. The server itself stays as fast as it is.
func (s *Server) LateClient(t testing.TB) (*redis.Client, *atomic.Int64) {
	t.Helper()
	late := &atomic.Int64{}
	o := *s.Client(t).Options()
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return lateAnswers{conn, late}, err
	}
	client := redis.NewClient(&o)
	t.Cleanup(func() { _ = client.Close() })
	return client, late
}
