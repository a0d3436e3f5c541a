package main

import (
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
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

var redisSchemes = []string{"redis", "rediss", "unix"}

var (
	errRedisScheme = errors.New("-redis: the URL must begin with redis://, rediss:// or unix://, like redis://127.0.0.1:6379")
	errRedisURL    = errors.New("-redis: the URL cannot be read; write it like redis://user:password@127.0.0.1:6379/0, " +
		"with what is special in a password as %23 and the like (it is not shown here: it may hold one)")
)

// parseRedisURL returns the options of a Redis, and what to show to people: no part of a
// password, whatever is wrong with the URL. Errors of parsers quote what they could not read.
func parseRedisURL(text string) (options *redis.Options, shown string, err error) {
	scheme, _, _ := strings.Cut(text, "://")
	if !slices.Contains(redisSchemes, scheme) {
		return nil, "", usageError{errRedisScheme}
	}
	u, err := url.Parse(text)
	if err != nil || u.Fragment != "" || strings.HasSuffix(text, "#") { // a # in a password ends the address too early
		return nil, "", usageError{errRedisURL}
	}
	if options, err = redis.ParseURL(text); err != nil {
		return nil, "", usageError{errRedisURL}
	}
	return options, fmt.Sprintf("%s://%s/%d", scheme, options.Addr, options.DB), nil
}
