// Package connect lets the examples run on a machine with nothing but Go: without a
// Redis of yours they start a stand-in inside the process (miniredis).
package connect

import (
	"errors"
	"fmt"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/tiered"
)

// Limiter makes a limiter on the Redis at url (redis://host:port), or on a stand-in if
// that is "". The function closes it.
func Limiter(url string, options ...tiered.Option) (*tiered.Limiter, func(), error) {
	server, stop, err := Options(url)
	if err != nil {
		return nil, nil, err
	}
	limiter, err := tiered.Open(server, options...)
	if err != nil {
		stop()
		return nil, nil, err
	}
	return limiter, func() { _ = limiter.Close(); stop() }, nil
}

// Options is how to reach the Redis at url, or a stand-in if that is "". The function
// ends the stand-in.
func Options(url string) (*redis.UniversalOptions, func(), error) {
	stop := func() {}
	if url == "" {
		server := miniredis.NewMiniRedis()
		if err := server.StartAddr("127.0.0.1:0"); err != nil {
			return nil, nil, fmt.Errorf("starting the stand-in for Redis: %w", err)
		}
		url, stop = "redis://"+server.Addr(), server.Close
	}
	parsed, err := redis.ParseURL(url)
	if err != nil {
		stop()
		// What the parser says quotes what it could not read: a part of a password, maybe.
		return nil, nil, errors.New("the URL of the Redis cannot be read; write it like redis://user:password@127.0.0.1:6379/0")
	}
	return &redis.UniversalOptions{
		Addrs: []string{parsed.Addr}, Username: parsed.Username, Password: parsed.Password,
		DB: parsed.DB, TLSConfig: parsed.TLSConfig,
	}, stop, nil
}
