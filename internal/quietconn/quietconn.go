// Package quietconn has network connections whose system calls do not wake up Go's monitor thread, and whose
// answers are read in time even while all processors are busy.
//
// Go notifies its scheduler of each system call, because the call may block. If the whole process was idle before,
// that wakes up the monitor thread of Go's runtime (sysmon), which finds nothing to do and goes to sleep again:
// four system calls and two switches between threads. A process with few callers is idle between each question to
// Redis and its answer. Where many such processes share a few cores, the monitor threads took as much time as the
// decisions (docs/measurements.md).
//
// The system calls of a non-blocking socket do not block: if there is nothing to read, they return an error that
// says so, and Go's network poller waits. So the scheduler need not be notified of them.
//
// Where answers come within microseconds, a read polls for a moment before it waits (poll_linux.go), if that is
// faster on this machine (trial_linux.go). Then the processor need not sleep and be woken up.
//
// The price: the monitor thread also interrupts a goroutine that computes for 10 ms without a pause, so that others get
// their turn, and checks the network for data. If a quiet read has woken up such a goroutine, the monitor thread may
// sleep until the next timer that the process had when the thread went to sleep; without a timer, for a minute. So a
// timer runs every 10 ms while quiet reads wait often (guard_linux.go), and others wait at most that much longer.
//
// A processor looks at the network poller when it has nothing to run. While all processors are busy, only the
// monitor thread does, every 10 ms. So under load an answer of Redis waited for longer than Redis had taken. A
// reader whose last answer took long therefore looks for its answer after each turn of the runnable goroutines, for
// as long as there are any.
package quietconn

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Dialer returns a function that dials quiet connections: TCP and Unix sockets, with TLS over them if config is not
// nil. On a connection with TLS, a write to a server that has closed the connection fails with [ErrClosedIdle].
// Connecting takes at most the given time, or as long as the context if that is 0. On systems other than Linux, on
// 386, which lacks the system calls, and under the race detector, which would miss the order that reads and writes
// establish, the connections are ordinary ones.
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
		conn := Client(plain)
		if config == nil {
			return conn, nil
		}
		secure := tls.Client(conn, forServer(config, addr))
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = conn.Close() // the handshake has failed
			return nil, err
		}
		return &secureConn{Conn: secure, below: conn}, nil
	}
}

// forServer returns a configuration with the server's name, taken from the address as package tls does. The server
// receives its name even if its certificate is not checked.
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
