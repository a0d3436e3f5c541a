package plan_test

import (
	"context"
	"testing"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/plan"
	"github.com/tierlimit/tierlimit/remote"
)

// Bytes of a log that is kept as a sorted set agree with MEMORY USAGE, before and after Redis gives up storing it in
// one piece, and with debt.
func TestBytesOfASortedSetAgreeWithMemoryUsage(t *testing.T) {
	client, ctx := redistest.Shared(t).Client(t), context.Background()
	script := remote.NewScript(client)
	c := plan.Candidate{Limit: limit.PerHour(4000), Algorithm: limit.SlidingLogZSet()}
	rule, err := remote.NewRule(c.Limit, c.Algorithm)
	if err != nil {
		t.Fatal(err)
	}
	key := redistest.Prefix()
	agrees := func(units int64) {
		t.Helper()
		measured := client.MemoryUsage(ctx, key, 0).Val()
		if got := c.Bytes(units, len(key)) - plan.Bookkeeping; off(got, measured) > 0.1 {
			t.Errorf("%d units: %d bytes, MEMORY USAGE says %d", units, got, measured)
		}
	}
	at, full := int64(epoch), c.Limit.Quota()
	for units := int64(1); units <= full; units++ {
		at++
		decide(t, script, remote.Entry{Key: key, Rule: rule, Cost: 1}, at)
		if units < 10 || units%41 == 0 || units > 120 && units < 130 || units == full {
			agrees(units)
		}
	}
	decide(t, script, remote.Entry{Key: key, Rule: rule, Operation: lua.Settle, Cost: full, Hold: &remote.Hold{}}, at)
	if n, most := client.ZCard(ctx, key).Val()-4, c.MostWithDebt(); n != most { // 4 members are not units
		t.Errorf("%d units count with debt, want %d", n, most)
	}
	agrees(c.MostWithDebt())
}
