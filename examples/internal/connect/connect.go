// Package connect lets the examples run on a machine that has nothing but Go. Without a Redis, they
// count inside the process.
package connect

import (
	"context"
	"errors"
	"net"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/embedded"
	"github.com/tierlimit/tierlimit/internal/standin"
	"github.com/tierlimit/tierlimit/tiered"
)

// Limiter returns a limiter on the Redis at url (redis://host:port), or one that needs no Redis if url
// is "". The function stop closes the limiter.
func Limiter(url string, options ...tiered.Option) (limiter *tiered.Limiter, stop func(), err error) {
	if url == "" {
		limiter, err = embedded.Open(options...)
	} else {
		limiter, err = tiered.OpenURL(url, options...)
	}
	if err != nil {
		return nil, nil, err
	}
	return limiter, func() { _ = limiter.Close() }, nil
}

// Options returns the options with which an example's own client reaches the Redis at url, or a
// stand-in for Redis if url is "". The function ends the stand-in.
func Options(url string) (*redis.UniversalOptions, func(), error) {
	if url == "" {
		server, err := standin.Start()
		if err != nil {
			return nil, nil, err
		}
		return &redis.UniversalOptions{
			Addrs:           []string{standin.Addr},
			Dialer:          func(context.Context, string, string) (net.Conn, error) { return server.Dial() },
			DisableIdentity: true,
		}, server.Close, nil
	}
	parsed, err := redis.ParseURL(url)
	if err != nil {
		// The parser's error quotes the text that it could not read, which may be a part of a password.
		return nil, nil, errors.New("the URL of the Redis cannot be read; write it like redis://user:password@127.0.0.1:6379/0")
	}
	return &redis.UniversalOptions{
		Addrs: []string{parsed.Addr}, Username: parsed.Username, Password: parsed.Password,
		DB: parsed.DB, TLSConfig: parsed.TLSConfig,
	}, func() {}, nil
}
