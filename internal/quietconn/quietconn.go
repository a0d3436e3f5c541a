// Package quietconn has network connections whose system calls do not wake up Go's monitor thread.
//
// Go tells its scheduler of each system call, because it may block. If all of the process was idle before,
// that wakes up the monitor thread of Go's runtime (sysmon), which finds nothing to do and goes to sleep
// again: four system calls and two switches between threads. A process with few callers is idle between each
// question to Redis and its answer. Where many such processes share a few cores, the monitor threads took as
// much time as the decisions (docs/measurements.md).
//
// The system calls of a non-blocking socket do not block: if there is nothing to read, they say so, and Go's
// network poller waits. So the scheduler need not be told of them.
//
// The price: the monitor thread also interrupts goroutines that have computed for 10 ms without a pause, so
// that others get their turn. If it sleeps when such a goroutine begins, because that was woken up by a quiet
// read and makes no system call itself, it notices at the process's next timer, which is that of the
// connection's deadline at the latest. To change nothing for processes that ask seldom, the scheduler is told
// of the call that ends a wait if the last one of which it was told is at least 100 ms ago.
package quietconn

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Dialer returns a function that dials quiet connections: TCP and Unix sockets, with TLS over them if config
// is not nil. Connecting takes at most the given time, or as long as the context if that is 0. On systems
// other than Linux, on 386, which lacks the system calls, and under the race detector, which would miss what is
// ordered by reads and writes, the connections are ordinary ones.
func Dialer(timeout time.Duration, config *tls.Config) func(ctx context.Context, network, addr string) (net.Conn, error) {
	dial := redis.NewDialer(&redis.Options{DialTimeout: timeout})
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, timeout)
			defer cancel()
		}
		plain, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		conn := Wrap(plain)
		if config == nil {
			return conn, nil
		}
		secure := tls.Client(conn, forServer(config, addr))
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = conn.Close() // the handshake has failed
			return nil, err
		}
		return secure, nil
	}
}

// forServer returns a configuration with the server's name, which package tls takes from the address, too.
// The server is told it also where its certificate is not checked.
func forServer(config *tls.Config, addr string) *tls.Config {
	if config.ServerName != "" {
		return config
	}
	config = config.Clone()
	config.ServerName = addr
	if colon := strings.LastIndexByte(addr, ':'); colon >= 0 {
		config.ServerName = addr[:colon]
	}
	return config
}
