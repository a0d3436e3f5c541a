package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/tierlimit/tierlimit/internal/redisurl"
	"github.com/tierlimit/tierlimit/internal/standin"
)

// redisFlag adds the flag -redis for commands that start their own Redis if none is given.
func redisFlag(set *flag.FlagSet, to *string, what string) {
	redisURLFlag(set, to, what, "$REDIS_URL, else an embedded one")
}

// redisURLFlag adds the flag -redis. Its default is never shown, because it may contain a password.
func redisURLFlag(set *flag.FlagSet, to *string, what, otherwise string) {
	*to = os.Getenv("REDIS_URL")
	set.Func("redis", "`URL` of a Redis"+what+", like redis://127.0.0.1:6379 (default "+otherwise+")",
		func(s string) error {
			*to = s
			return nil
		})
}

var errRedisFleet = errors.New("-redis: the URL is of a Cluster or of Sentinel, must be of one node, like redis://127.0.0.1:6379")

// parseRedisURL returns the options of a Redis, and its address in a form that may be shown to people.
func parseRedisURL(text string) (options *redis.Options, shown string, err error) {
	o, shown, err := redisurl.Parse(text)
	switch {
	case err != nil:
		return nil, "", usageError{fmt.Errorf("-redis: %w", err)}
	case o.IsClusterMode || o.MasterName != "":
		return nil, "", usageError{errRedisFleet}
	}
	options = o.Simple()
	options.Network = "tcp" // Simple leaves it to the client, but the demo dials by itself
	if strings.HasPrefix(options.Addr, "/") {
		options.Network = "unix"
	}
	return options, shown, nil
}

// server is the Redis that a command uses.
type server struct {
	options *redis.Options
	shown   string // shown to people, without a password
	stop    func() // stops a Redis that was started
}

// findRedis returns the Redis at url, or an embedded one if url is empty. It prints on stderr which
// Redis it is, so that nobody uses the Redis of $REDIS_URL without knowing.
func findRedis(url string, stderr io.Writer) (server, error) {
	if url == "" {
		embedded, err := standin.Start()
		if err != nil {
			return server{}, fmt.Errorf("starting the embedded Redis: %w (-redis URL, or $REDIS_URL)", err)
		}
		return server{embedded.Options(), "embedded", embedded.Close}, nil
	}
	options, shown, err := parseRedisURL(url)
	if err != nil {
		return server{}, err
	}
	options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	options.DialerRetries = 1
	options.ContextTimeoutEnabled = true // so that an interrupted command does not wait for a Redis that hangs
	sayRedis(stderr, shown, url)
	return server{options, shown, func() {}}, nil
}

func sayRedis(stderr io.Writer, shown, url string) {
	from := ""
	if url == os.Getenv("REDIS_URL") {
		from = " ($REDIS_URL)"
	}
	fmt.Fprintf(stderr, "using the Redis at %s%s\n", shown, from)
}
