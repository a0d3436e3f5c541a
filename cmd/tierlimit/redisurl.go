package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redisurl"
)

// redisFlag is the flag -redis, whose default is never shown: it may hold a password.
func redisFlag(set *flag.FlagSet, to *string, what string) {
	*to = os.Getenv("REDIS_URL")
	set.Func("redis", "`URL` of a Redis"+what+", like redis://127.0.0.1:6379 (default $REDIS_URL, else an embedded one)",
		func(s string) error {
			*to = s
			return nil
		})
}

var errRedisFleet = errors.New("-redis: the URL is of a Cluster or of Sentinel, must be of one node, like redis://127.0.0.1:6379")

// parseRedisURL returns the options of a Redis, and what to show to people.
func parseRedisURL(text string) (options *redis.Options, shown string, err error) {
	o, shown, err := redisurl.Parse(text)
	switch {
	case err != nil:
		return nil, "", usageError{fmt.Errorf("-redis: %w", err)}
	case o.IsClusterMode || o.MasterName != "":
		return nil, "", usageError{errRedisFleet}
	}
	options = o.Simple()
	options.Network = "tcp" // Simple leaves it to the client; the demo dials by itself
	if strings.HasPrefix(options.Addr, "/") {
		options.Network = "unix"
	}
	return options, shown, nil
}
