package plan_test

import (
	"context"
	"testing"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/internal/state"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/plan"
	"github.com/tierlimit/tierlimit/remote"
)

// Units charged beyond the limit, as when a hold is settled with more than was held, count up to
// MostWithDebt. The key then takes the bytes that Bytes returns. A log grows, and so does a counter
// whose counts need one more byte.
func TestMostWithDebtIsWhatRedisCounts(t *testing.T) {
	client, ctx := redistest.Shared(t).Client(t), context.Background()
	script := remote.NewScript(client)
	for _, l := range []limit.Limit{limit.PerHour(3), limit.PerHour(1000), limit.PerHour(40_000), limit.PerHour(1000).WithBurst(2000)} {
		candidates, err := plan.Candidates(l)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range candidates {
			rule, err := remote.NewRule(c.Limit, c.Algorithm)
			if err != nil {
				t.Fatal(err)
			}
			key := redistest.Prefix()
			for i := range int64(12) { // each charges a whole limit
				decide(t, script, remote.Entry{Key: key, Rule: rule, Operation: lua.Settle, Cost: l.Quota(), Hold: &remote.Hold{}}, epoch+i)
			}
			value, err := client.Get(ctx, key).Bytes()
			if err != nil {
				t.Fatal(err)
			}
			counted, err := state.Decode(value, epoch+12, 0)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := counted.Used(), c.MostWithDebt(); got != want {
				t.Errorf("%v %v: %d units count, want %d", l, c, got, want)
			}
			measured := client.MemoryUsage(ctx, key, 0).Val()
			if got := c.Bytes(c.MostWithDebt(), len(key)) - plan.Bookkeeping; off(got, measured) > 0.1 {
				t.Errorf("%v %v: %d bytes, MEMORY USAGE says %d", l, c, got, measured)
			}
		}
	}
	concurrent := plan.Candidate{Limit: limit.Concurrent(7), Algorithm: limit.Concurrency()}
	if got := concurrent.MostWithDebt(); got != 7 {
		t.Errorf("%d units are in flight, of 7", got)
	}
}
