// Package embedded provides a limiter that needs no Redis, for one process: for development, and for
// services that run as a single process now and may run as several later.
//
//	func open() (*tiered.Limiter, error) {
//		if url := os.Getenv("REDIS_URL"); url != "" {
//			return tiered.OpenURL(url)
//		}
//		return embedded.Open()
//	}
//
// The limiter is the same one with the same algorithms, on a stand-in for Redis inside the process
// (miniredis), which has no port. So limits are exact, and there is no outage. Nothing changes in the
// code when the service moves to a real Redis. But:
//
//   - A decision takes some 100 µs of a processor instead of Redis's 5 µs, and decisions run one
//     after another: a few thousand a second. If that is too slow, golang.org/x/time/rate is far
//     cheaper for one process.
//   - All charges are lost when the process ends.
//   - Processes share nothing: each would grant the whole limit.
//   - The limiter needs a 64-bit platform; on others Open returns an error.
//   - Everything is in the process's memory: some 500 bytes per key in use. Once a second all keys
//     are searched for expired ones; less often if that takes more than 50 ms.
//
// In a bubble of testing/synctest, the limiter follows the bubble's clock.
package embedded

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/inspect"
	"github.com/tierlimit/tierlimit/internal/option"
	"github.com/tierlimit/tierlimit/internal/standin"
	"github.com/tierlimit/tierlimit/tiered"
)

// Open returns a limiter that needs no Redis. Limiters of different calls share nothing. Close also
// ends the stand-in, with all that it holds. The deadline is 10 s, because there is no Redis to be
// lost; options can change that. Errors are those of [tiered.Open].
func Open(options ...tiered.Option) (*tiered.Limiter, error) {
	if err := option.NotNil(options); err != nil { // counts only the caller's options
		return nil, err
	}
	server, err := standin.Start()
	if err != nil {
		return nil, fmt.Errorf("tierlimit: starting the stand-in for Redis: %w", err)
	}
	client := &redis.UniversalOptions{
		Addrs:           []string{standin.Addr},
		Dialer:          func(context.Context, string, string) (net.Conn, error) { return server.Dial() },
		DisableIdentity: true,
	}
	limiter, err := tiered.Open(client, append([]tiered.Option{tiered.Deadline(10 * time.Second), tiered.KeepLogOfRedis()}, options...)...)
	if err != nil {
		server.Close()
		return nil, err
	}
	inspect.Of(limiter).AfterClose(server.Close)
	return limiter, nil
}
