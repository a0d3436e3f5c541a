package redistest

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// These times are variables for this package's own test.
var (
	// waitsFor is less than a new limiter waits for Redis. One that gives up earlier does not because of the machine.
	waitsFor = 900 * time.Millisecond
	// memberFor is longer than a limiter counts as a member of its fleet if it has not left the fleet, as one that
	// closes while Redis is lost.
	memberFor = 6 * time.Second
)

// Reached calls start, which makes a limiter, again if the limiter has waited for Redis for as long as it does and
// starts in an outage, although the client's server, or all masters of its Cluster, answer. A limiter waits for a
// second or two, which a busy machine may use up. start is called up to four times, and the last limiter is returned
// whatever its state is.
func Reached[L interface {
	Degraded() bool
	Close() error
}](tb testing.TB, client redis.UniversalClient, start func() (L, error)) L {
	tb.Helper()
	const attempts = 4
	for attempt := 1; ; attempt++ {
		began := time.Now()
		l, err := start()
		took := time.Since(began)
		if err != nil {
			tb.Fatal(err)
		}
		if !l.Degraded() || took < waitsFor || attempt == attempts || !answers(client) {
			return l
		}
		tb.Log("a new limiter has not reached Redis in time, although Redis answers: it is made again")
		_ = l.Close()
		time.Sleep(memberFor)
	}
}

func answers(client redis.UniversalClient) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	switch client := client.(type) {
	case *redis.Client:
		return client.Ping(ctx).Err() == nil
	case *redis.ClusterClient:
		return client.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error { return master.Ping(ctx).Err() }) == nil
	}
	return false
}
