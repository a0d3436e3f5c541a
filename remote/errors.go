package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/limit"
)

// Kind sorts errors of Redis and of the way to it into few kinds, for metrics.
type Kind string

// The kinds.
const (
	Timeout     Kind = "timeout"     // no answer in time
	Unreachable Kind = "unreachable" // refused, reset, no route, no such host
	Auth        Kind = "auth"        // credentials or permissions
	Unavailable Kind = "unavailable" // it answers, but cannot serve (LOADING, READONLY, OOM, ...)
	Protocol    Kind = "protocol"    // what answers does not speak Redis, or lacks scripts
	Other       Kind = "other"
)

// Kinds returns all kinds.
func Kinds() []Kind {
	return []Kind{Timeout, Unreachable, Auth, Unavailable, Protocol, Other}
}

// KindOf sorts an error.
func KindOf(err error) Kind {
	switch {
	case errors.Is(err, ErrNoAnswer), errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded),
		errors.Is(err, redis.ErrPoolTimeout):
		return Timeout
	}
	for _, prefix := range []string{"NOAUTH", "WRONGPASS", "NOPERM", "invalid password", "invalid username-password", "AUTH "} {
		if redis.HasErrorPrefix(err, prefix) {
			return Auth
		}
	}
	for _, prefix := range []string{
		"LOADING", "READONLY", "MASTERDOWN", "OOM", "BUSY", "MISCONF", "NOREPLICAS", "CLUSTERDOWN", "TRYAGAIN", "max number of clients",
	} {
		if redis.HasErrorPrefix(err, prefix) {
			return Unavailable
		}
	}
	var redisErr redis.Error
	if errors.As(err, &redisErr) && strings.Contains(redisErr.Error(), "unknown command") {
		return Protocol
	}
	if strings.Contains(err.Error(), "redis: can't parse") || strings.Contains(err.Error(), "redis: invalid reply") {
		return Protocol
	}
	var netErr net.Error
	switch {
	case errors.As(err, &netErr) && netErr.Timeout():
		return Timeout
	case errors.As(err, &netErr), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, redis.ErrClosed):
		return Unreachable
	}
	return Other
}

// Misconfigured turns an error that waiting will not mend into one that says
// what to do: wrong credentials, or a server that is no Redis. It returns nil for
// all others.
func Misconfigured(err error) error {
	switch KindOf(err) {
	case Auth:
		return fmt.Errorf("%w: check user name, password and ACL (EVALSHA, SCRIPT LOAD, TIME and the commands in package lua): %w", limit.ErrAuth, err)
	case Protocol:
		return fmt.Errorf("%w: check the address: %w", limit.ErrNotRedis, err)
	}
	return nil
}
