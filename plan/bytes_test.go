package plan_test

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/plan"
	"github.com/tierlimit/tierlimit/remote"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// off is how far a figure is from what was measured, as a part of that.
func off(figure, measured int64) float64 {
	return math.Abs(float64(figure-measured)) / float64(measured)
}

// Bytes are those of MEMORY USAGE on a real Redis: at rest, full, and on the way.
func TestBytesAgreeWithMemoryUsage(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	script := remote.NewScript(client)
	for _, l := range []limit.Limit{
		limit.PerHour(1), limit.PerHour(10), limit.PerMinute(700), limit.PerHour(999_983), limit.Per(300, 7*24*time.Hour), limit.PerSecond(10_000_000),
	} {
		candidates, err := plan.Candidates(l)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range candidates {
			rule, err := remote.NewRule(c.Limit, c.Algorithm)
			if err != nil {
				t.Fatal(err)
			}
			for _, length := range []int{12, 24, 40, 90} {
				key := redistest.Prefix()
				key += strings.Repeat("k", max(0, length-len(key)))
				// A log is filled one by one, as it grows; the others' size is that of one.
				for units := int64(1); units <= min(l.Quota(), 700); units++ {
					decide(t, script, remote.Entry{Key: key, Rule: rule, Cost: 1}, epoch+units)
					if c.Algorithm != limit.SlidingLog() || units%97 == 0 || units == 1 || units == l.Quota() {
						measured := client.MemoryUsage(context.Background(), key, 0).Val()
						if got := c.Bytes(units, length) - plan.Bookkeeping; off(got, measured) > 0.1 {
							t.Errorf("%v %v, %d units, name of %d: %d bytes, MEMORY USAGE says %d", l, c, units, length, got, measured)
						}
					}
					if c.Algorithm != limit.SlidingLog() {
						break
					}
				}
			}
		}
	}
}

func decide(t *testing.T, script *remote.Script, e remote.Entry, clock int64) {
	t.Helper()
	if _, err := script.Run(context.Background(), []remote.Entry{e}, clock); err != nil {
		t.Fatal(err)
	}
}

// At 100,000 keys, used_memory has grown by what is stated for each, within 10 %.
func TestBytesAgreeWithUsedMemory(t *testing.T) {
	const keys, batch = 100_000, 500
	client := redistest.Start(t).Client(t)
	script := remote.NewScript(client)
	for _, c := range []plan.Candidate{
		{Limit: limit.PerHour(50), Algorithm: limit.SlidingLog()},
		{Limit: limit.PerHour(10_000), Algorithm: limit.SlidingCounter(16, limit.Strict)},
		{Limit: limit.PerHour(10_000), Algorithm: limit.GCRA()},
		{Limit: limit.PerHour(10_000), Algorithm: limit.FixedWindow()},
	} {
		rule, err := remote.NewRule(c.Limit, c.Algorithm)
		if err != nil {
			t.Fatal(err)
		}
		if err := client.FlushAll(context.Background()).Err(); err != nil {
			t.Fatal(err)
		}
		before := usedMemory(t, client)
		for from := 0; from < keys; from += batch {
			entries := make([]remote.Entry, batch)
			for i := range entries {
				entries[i] = remote.Entry{
					Key: fmt.Sprintf("tl:{user-%09d}:search", from+i), Rule: rule,
					Operation: lua.TakeUpTo, Cost: c.Algorithm.Capacity(c.Limit),
				}
			}
			if _, err := script.Run(context.Background(), entries, 0); err != nil {
				t.Fatal(err)
			}
		}
		measured := (usedMemory(t, client) - before) / keys
		stated := c.Full(len("tl:{user-000000000}:search"))
		t.Logf("%v: %d bytes stated, used_memory grew by %d a key", c, stated, measured)
		if off(stated, measured) > 0.1 {
			t.Errorf("%v: %d bytes stated, used_memory grew by %d a key", c, stated, measured)
		}
	}
}

func usedMemory(t *testing.T, client *redis.Client) int64 {
	t.Helper()
	info := client.InfoMap(context.Background(), "memory").Val()
	n, err := strconv.ParseInt(info["Memory"]["used_memory"], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
