package remote

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
)

// Law 3: while a slot is moving, some of its keys are on one node, some on the other, and some are
// new. A batch of them is decided even so, and each entry is charged once. Only a group cannot be
// divided; it charges nothing.
func TestLaw3KeysOfAMovingSlot(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2)
	client, ctx := cluster.Client(t), context.Background()
	script := NewScript(client)
	rule := newRule(t, limit.PerHour(10), limit.SlidingLog())
	batch := func(group int, keys ...string) (entries []Entry) {
		for _, key := range keys {
			entries = append(entries, Entry{Key: key, Rule: rule, Cost: 1, Group: group})
		}
		return entries
	}
	expect := func(entries []Entry, remaining ...int64) {
		t.Helper()
		replies, err := script.Run(ctx, entries, 0)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range replies {
			if r.Err != nil || r.Status != Allowed || r.Remaining != remaining[i] {
				t.Errorf("entry %d, of %s: %+v, want allowed with %d remaining", i, entries[i].Key, r, remaining[i])
			}
		}
	}
	slot := int(keySlot("{a}"))
	from, to := cluster.Nodes()[0], cluster.Nodes()[1]
	if slot >= 16384/2 {
		from, to = to, from
	}

	expect(batch(0, "{a}1", "{a}2"), 9, 9)
	cluster.MoveSlots(t, from, to, []int{slot}, func() {
		expect(batch(0, "{a}1", "{a}2", "{a}1", "{a}3"), 8, 8, 7, 9)
		replies, err := script.Run(ctx, batch(1, "{a}1", "{a}2"), 0)
		if !redis.HasErrorPrefix(err, "TRYAGAIN") || KindOf(err) != Unavailable || replies != nil {
			t.Errorf("a group: %+v, %v; want TRYAGAIN", replies, err)
		}
		hold := Entry{Key: "{a}new", Rule: rule, Operation: lua.Hold, Cost: 1, Hold: &Hold{ID: 1, Life: time.Minute}} // has two keys
		if replies, err := script.Run(ctx, []Entry{hold}, 0); !redis.HasErrorPrefix(err, "TRYAGAIN") {
			t.Errorf("a hold: %+v, %v; want TRYAGAIN", replies, err)
		}
	})
	expect(batch(1, "{a}1", "{a}2"), 6, 7)

	info, err := from.Client(t).Info(ctx, "errorstats").Result()
	if err != nil || !strings.Contains(info, "errorstat_TRYAGAIN") {
		t.Errorf("the slot was never found torn: %v\n%s", err, info)
	}
}
