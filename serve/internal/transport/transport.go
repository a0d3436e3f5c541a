// Package transport bounds what gRPC clients may use, and sets how their connections are read and written.
package transport

import (
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/tierlimit/tierlimit/internal/quietconn"
)

// pingTimeout is how long a client may take to answer a ping, and its kernel to acknowledge sent data.
const pingTimeout = 20 * time.Second

// pingsApart is how far apart a client's pings must be. gRPC closes the connection of a client that sends three earlier
// ones without an answer to a call in between. Envoy pings as often as its connection_keepalive says, such as every second.
const pingsApart = 100 * time.Millisecond

// MaxStreams is how many calls a connection may have in flight, and longestRequest is how many bytes a call may
// have. They bound the memory for callers that do not read. A client with more calls has to queue them or open
// another connection.
const (
	MaxStreams     = 1_000
	longestRequest = 4 << 20
)

// LongestHeaders is how many bytes the headers of a call may have. gRPC's default is 16 MB for each call in flight on
// a connection.
const LongestHeaders = 64 << 10

// window is how many bytes of requests may be in flight, for a call and for a connection.
const window = 1 << 20

// streamWorkers is how many permanent goroutines answer calls. A call that finds none free gets a goroutine of its
// own.
const streamWorkers = 256

// Options returns the options of the service's gRPC server. A connection stops taking calls at the given age, and its
// calls are ended a grace later.
func Options(age, grace time.Duration) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionAge: age, MaxConnectionAgeGrace: grace,
			// A client that no longer reads does not answer pings either, and is disconnected.
			Time: time.Minute, Timeout: pingTimeout,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingsApart, PermitWithoutStream: true}),
		grpc.MaxConcurrentStreams(MaxStreams),
		grpc.MaxRecvMsgSize(longestRequest),
		grpc.MaxHeaderListSize(LongestHeaders),
		// Goroutines that answer one call after another keep their stacks. Otherwise the stacks grow anew for each
		// call, which takes a sixth of the processor time.
		grpc.NumStreamWorkers(streamWorkers),
		// The windows do not grow. Otherwise gRPC would send a ping for nearly each piece that it reads, to measure
		// the connection.
		grpc.StaticStreamWindowSize(window), grpc.StaticConnWindowSize(window),
	}
}

// Ending is a listener whose connections end when the other side no longer acknowledges data.
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

// Listener is an [Ending] listener whose connections also do not wake up Go's monitor thread.
type Listener struct{ net.Listener }

// Accept implements [net.Listener].
func (l Listener) Accept() (net.Conn, error) {
	accepted, err := Ending(l).Accept()
	if err != nil {
		return nil, err
	}
	return quietconn.Server(accepted), nil
}
