// Package transport says what gRPC's clients may take, and how their connections are read and written.
package transport

import (
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/tierlimit/tierlimit/internal/quietconn"
)

// pingTimeout is how long a client may take to answer a ping, and its kernel to take what is sent.
const pingTimeout = 20 * time.Second

// MostStreams is how many calls a connection may have under way, and longestRequest how many bytes
// each of them: what they take of memory is bounded, if their caller does not read. Whoever has
// more calls makes them wait, or opens another connection.
const (
	MostStreams    = 1_000
	longestRequest = 4 << 20
)

// LongestHeaders is how many bytes the headers of a call may have. By default gRPC takes 16 MB, of
// each call that a connection has under way.
const LongestHeaders = 64 << 10

// window is how many bytes of requests may be on the way, of a call and of a connection.
const window = 1 << 20

// streamWorkers is how many calls are answered by goroutines that are kept; further ones have
// one of their own.
const streamWorkers = 256

// Options are those of the service's gRPC server. A connection is ended when it is so old, and its
// calls a grace later.
func Options(age, grace time.Duration) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionAge: age, MaxConnectionAgeGrace: grace,
			// Who reads nothing any more does not answer either, and is let go.
			Time: time.Minute, Timeout: pingTimeout,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.MaxConcurrentStreams(MostStreams),
		grpc.MaxRecvMsgSize(longestRequest),
		grpc.MaxHeaderListSize(LongestHeaders),
		// Goroutines that answer one call after another keep their stacks, which else grow for
		// each call: a sixth of the processor time.
		grpc.NumStreamWorkers(streamWorkers),
		// Windows that do not grow: else gRPC sends a ping for nearly each piece that it reads, to
		// measure the connection.
		grpc.StaticStreamWindowSize(window), grpc.StaticConnWindowSize(window),
	}
}

// Ending is a listener whose connections end when the other side takes nothing.
type Ending struct{ net.Listener }

// Accept implements [net.Listener].
func (l Ending) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	setUserTimeout(accepted, pingTimeout)
	return accepted, nil
}

// Listener is an [Ending] one whose connections do not wake up Go's monitor thread either.
type Listener struct{ net.Listener }

// Accept implements [net.Listener].
func (l Listener) Accept() (net.Conn, error) {
	accepted, err := Ending(l).Accept()
	if err != nil {
		return nil, err
	}
	return quietconn.Server(accepted), nil
}
