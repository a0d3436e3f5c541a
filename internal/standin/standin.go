// Package standin is a stand-in for Redis inside the process. It is miniredis without a port, and runs
// the decision script in an interpreter that it keeps. A decision takes some 50 µs.
package standin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Server is a stand-in. It is safe for concurrent use.
type Server struct {
	redis  *miniredis.Miniredis
	ended  chan struct{}
	close  sync.Once
	sweeps sync.WaitGroup
	expiry *expiry
}

// Addr is what the options of a stand-in's clients have instead of an address.
const Addr = "embedded"

// ErrPlatform says that miniredis cannot hold the script's expiry times and offsets, because it takes
// them as an int.
var ErrPlatform = errors.New("miniredis needs a 64-bit platform")

// Start starts a stand-in. The error is ErrPlatform where an int has 32 bits. Clients outside the process
// cannot connect to it.
func Start() (*Server, error) {
	s, err := start(time.Now)
	if err != nil {
		return nil, err
	}
	s.sweeps.Go(s.sweep)
	return s, nil
}

// start is Start, but keys expire only when expiry.sweep is called.
func start(now func() time.Time) (*Server, error) {
	if strconv.IntSize < 64 {
		return nil, fmt.Errorf("%w, and this program is built for %s: connect to a Redis server instead", ErrPlatform, runtime.GOARCH)
	}
	s := &Server{redis: miniredis.NewMiniRedis(), ended: make(chan struct{})}
	first, err := s.redis.Dial() // starts miniredis
	if err != nil {
		return nil, err
	}
	if err := first.Close(); err != nil {
		return nil, err
	}
	interpreter, err := newInterpreter(s.redis.Server())
	if err != nil {
		s.redis.Close()
		return nil, err
	}
	s.expiry = newExpiry(s.redis, now)
	s.redis.Server().SetPreHook(func(peer *server.Peer, command string, args ...string) bool {
		s.expiry.prolong(command, args)
		return interpreter.hook(peer, command, args...)
	})
	return s, nil
}

// sweep lets keys expire. It looks at all keys, so it runs at intervals and not for each command.
func (s *Server) sweep() {
	timer := time.NewTimer(pause(0))
	defer timer.Stop()
	for {
		select {
		case <-s.ended:
			return
		case <-timer.C:
			began := time.Now()
			s.expiry.sweep()
			timer.Reset(pause(time.Since(began)))
		}
	}
}

// pause returns how long to wait after a sweep that took the given time. For a sweep, miniredis sorts all
// keys, and serves nobody else meanwhile. With some 100,000 keys, a sweep per second would take a good
// part of all time.
func pause(took time.Duration) time.Duration { return max(time.Second, 20*took) }

// Dial connects to the stand-in. The error is net.ErrClosed after Close.
func (s *Server) Dial() (net.Conn, error) {
	select {
	case <-s.ended: // otherwise miniredis would start again
		return nil, net.ErrClosed
	default:
		return s.redis.Dial()
	}
}

// Options returns the options for clients of the stand-in.
func (s *Server) Options() *redis.Options {
	return &redis.Options{
		Addr:                     Addr,
		Dialer:                   func(context.Context, string, string) (net.Conn, error) { return s.Dial() },
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// Close ends the stand-in and discards its data.
func (s *Server) Close() {
	s.close.Do(func() {
		close(s.ended)
		s.sweeps.Wait()
		s.redis.Close()
	})
}
