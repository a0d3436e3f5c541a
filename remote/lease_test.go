package remote

import (
	"context"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
)

// Laws 7 and 8: however large the limit, at most 64 processes have leases of a key, and the key of the leases
// expires with the last lease.
func TestLaws7And8LeasesOfAKeyAreBounded(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	script := NewScript(client)
	key := redistest.Prefix() + "leased"
	rule := newRule(t, limit.PerHour(limit.MaxQuota), limit.FixedWindow())
	e := Entry{Key: key, Rule: rule, Operation: lua.Lease, Cost: 1}
	granted := int64(0)
	for id := uint64(1); id <= 70; id++ {
		e.Lease = &Lease{ID: id, Most: limit.MaxQuota / 2, Life: time.Second}
		replies, err := script.Run(context.Background(), []Entry{e}, 0)
		if err != nil {
			t.Fatal(err)
		}
		granted += replies[0].Granted
	}
	if granted != 64 {
		t.Errorf("%d leases were granted", granted)
	}
	ttl, err := client.PTTL(context.Background(), key+":lease").Result()
	if err != nil || ttl <= 0 || ttl > time.Second+time.Millisecond { // keys expire at whole milliseconds
		t.Errorf("what is out on lease expires in %v, %v", ttl, err)
	}
}

// Law 8: the key of the leases is kept until the last of them ends, whichever was granted last.
func TestLaw8LeasesAreKeptUntilTheLastOneEnds(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	script, rule := NewScript(client), newRule(t, limit.PerHour(1000), limit.SlidingLog())
	for {
		key := redistest.Prefix() + "leased"
		var clocks [3]int64
		for i, life := range []time.Duration{time.Second, 600 * time.Millisecond, 300 * time.Millisecond} {
			e := Entry{Key: key, Rule: rule, Operation: lua.Lease, Cost: 1, Lease: &Lease{ID: uint64(i) + 1, Most: 500, Life: life}}
			clocks[i] = runAll(t, script, []Entry{e})[0].Clock
		}
		if clocks[2]-clocks[0] >= 600_000 {
			continue // the second lease may have ended
		}
		want := (clocks[0] + time.Second.Microseconds() + 999) / 1000
		if at := redistest.ExpireTime(t, client, key+":lease").Milliseconds(); at != want {
			t.Errorf("expires at %d, want %d, when the first lease ends", at, want)
		}
		return
	}
}

// Law 1: a lease of a fixed window ends with the window, in which its units were charged.
func TestLaw1LeasesEndWithTheirWindow(t *testing.T) {
	script, rule := NewScript(redistest.Shared(t).Client(t)), newRule(t, limit.PerMinute(100), limit.FixedWindow())
	end := int64(epoch) - epoch%60_000_000 + 60_000_000
	for _, left := range []time.Duration{10 * time.Millisecond, 2 * time.Second} {
		e := Entry{Key: redistest.Prefix() + "leased", Rule: rule, Operation: lua.Lease, Cost: 10, Lease: &Lease{ID: 1, Most: 50, Life: time.Second}}
		replies, err := script.Run(t.Context(), []Entry{e}, end-left.Microseconds())
		if err != nil || replies[0].Life != min(left, time.Second) {
			t.Errorf("%v before the end of the window: %+v, %v", left, replies, err)
		}
	}
}

// A value of leases of an unknown version is left unchanged, and no units are leased.
func TestUnknownLeasesAreLeftAlone(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	ctx, script := context.Background(), NewScript(client)
	key := redistest.Prefix() + "leased"
	e := Entry{Key: key, Rule: newRule(t, limit.PerHour(100), limit.SlidingLog()), Operation: lua.Lease, Cost: 10,
		Lease: &Lease{ID: 1, Over: 2, Most: 50, Life: time.Second}}
	for _, value := range []string{"", "\xffof a later version"} {
		if err := client.Set(ctx, key+":lease", value, 0).Err(); err != nil {
			t.Fatal(err)
		}
		replies, err := script.Run(ctx, []Entry{e}, 0)
		if err != nil || replies[0].Granted != 0 || replies[0].Remaining != 100 {
			t.Errorf("%q: %+v, %v", value, replies, err)
		}
		if got := client.Get(ctx, key+":lease").Val(); got != value {
			t.Errorf("%q became %q", value, got)
		}
	}
}

// When the clock has stepped back and the key's own clock was lost with its state, leases from before end within the
// longest time that a lease may last, also if no further units could be leased meanwhile.
func TestLeasesOfALostClockEnd(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	script, rule, key := NewScript(client), newRule(t, limit.PerHour(1000), limit.FixedWindow()), redistest.Prefix()+"leased"
	lease := func(id uint64, now, want int64) {
		t.Helper()
		e := Entry{Key: key, Rule: rule, Operation: lua.Lease, Cost: 1, Lease: &Lease{ID: id, Most: 1, Life: time.Second}}
		replies, err := script.Run(t.Context(), []Entry{e}, now)
		if err != nil || replies[0].Granted != want {
			t.Errorf("at %d: %+v, %v, want %d units", now, replies, err, want)
		}
	}
	now := time.Now().UnixMicro()
	lease(1, now, 1)
	if err := client.Del(t.Context(), key).Err(); err != nil {
		t.Fatal(err)
	}
	now -= time.Hour.Microseconds()
	lease(2, now, 0)
	lease(3, now+lua.LongestLease, 1)
}
