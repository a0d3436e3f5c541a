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

// off returns how far a figure differs from the measured one, as a part of the measured one.
func off(figure, measured int64) float64 {
	return math.Abs(float64(figure-measured)) / float64(measured)
}

// Bytes agrees with MEMORY USAGE on a real Redis: at rest, full, and in between.
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
			if c.AtRest(0) != c.Bytes(1, plan.DefaultNameBytes) {
				t.Errorf("%v %v: %d bytes at rest, %d of one unit", l, c, c.AtRest(0), c.Bytes(1, plan.DefaultNameBytes))
			}
			rule, err := remote.NewRule(c.Limit, c.Algorithm)
			if err != nil {
				t.Fatal(err)
			}
			for _, length := range []int{12, 24, 40, 90} {
				key := redistest.Prefix()
				key += strings.Repeat("k", max(0, length-len(key)))
				// A log is filled unit by unit, so that it grows; other states keep their size.
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

// The bytes of slots and of open holds agree with MEMORY USAGE, too: for one line, for some, and for
// the largest number.
func TestBytesOfWhatIsHeldAgreeWithMemoryUsage(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	script, ctx := remote.NewScript(client), context.Background()
	concurrent := plan.Candidate{Limit: limit.Concurrent(5000), Algorithm: limit.Concurrency()}
	rule, err := remote.NewRule(limit.PerHour(1_000_000), limit.GCRA())
	if err != nil {
		t.Fatal(err)
	}
	for length, lines := range map[int]int{16: 3, 40: 1000, 90: 3} {
		prefix := redistest.Prefix()
		keyspace, err := remote.NewKeyspace(prefix)
		if err != nil {
			t.Fatal(err)
		}
		user := remote.NewUserKey(strings.Repeat("k", max(1, min(60, length-len(prefix)-5))))
		name := keyspace.Key("r", user)
		related := keyspace.Related(name)
		var acquired, held []remote.Entry // consecutive entries of one key are cheaper
		for n := 1; n <= lines; n++ {
			slots, err := remote.NewSlotsRule(concurrent.Limit, time.Minute, remote.Holder{byte(n >> 8), byte(n)})
			if err != nil {
				t.Fatal(err)
			}
			acquired = append(acquired, remote.Entry{Key: string(user), Rule: slots.Named(keyspace, "r", nil), Cost: 1})
			held = append(held, remote.Entry{
				Key: string(user), Rule: rule.Named(keyspace, "r", nil), Operation: lua.Hold, Cost: 1,
				Hold: &remote.Hold{ID: uint64(n), Life: time.Minute},
			})
			if n > 3 && n%100 > 0 {
				continue
			}
			if _, err := script.Run(ctx, append(acquired, held...), epoch); err != nil {
				t.Fatal(err)
			}
			acquired, held = nil, nil
			for key, got := range map[string]int64{related.Slots: concurrent.Bytes(int64(n), len(name)), related.Holds: plan.HoldsBytes(n, len(name))} {
				measured := client.MemoryUsage(ctx, key, 0).Val()
				if got -= plan.Bookkeeping; off(got, measured) > 0.1 {
					t.Errorf("%s with %d lines: %d bytes, MEMORY USAGE says %d", key, n, got, measured)
				}
			}
		}
	}
	if full := concurrent.Full(0); full != concurrent.Bytes(1000, 0) || plan.HoldsBytes(1001, 0) != plan.HoldsBytes(1000, 0) || plan.HoldsBytes(0, 0) != 0 {
		t.Errorf("more than a key can have: %d bytes of %d", full, concurrent.Bytes(1000, 0))
	}
}

func decide(t *testing.T, script *remote.Script, e remote.Entry, clock int64) {
	t.Helper()
	if _, err := script.Run(context.Background(), []remote.Entry{e}, clock); err != nil {
		t.Fatal(err)
	}
}

// With 25,000 keys, used_memory has grown by the stated bytes per key, within 10 %. 100,000 and 1.6
// million keys fill the buckets of Redis's table to the same degree.
func TestBytesAgreeWithUsedMemory(t *testing.T) {
	const keys, batch = 25_000, 500
	client := redistest.Start(t).Client(t)
	script := remote.NewScript(client)
	for _, c := range []plan.Candidate{
		{Limit: limit.PerHour(50), Algorithm: limit.SlidingLog()},
		{Limit: limit.PerHour(50), Algorithm: limit.SlidingLogZSet()},
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
