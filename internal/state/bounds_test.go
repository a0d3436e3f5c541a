package state_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/internal/state"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// number is a field of a value.
type number struct{ width, n int64 }

// pack returns a value without an offset: its tag, the time of its newest charge, and its fields.
func pack(tag byte, newest int64, fields ...number) []byte {
	return appendNumbers([]byte{tag}, append([]number{{7, newest}, {7, 0}}, fields...)...)
}

func appendNumbers(value []byte, fields ...number) []byte {
	for _, f := range fields {
		for shift := 8 * (f.width - 1); shift >= 0; shift -= 8 {
			value = append(value, byte(f.n>>shift))
		}
	}
	return value
}

// The largest numbers that a value may have are those up to which the scripts read it. A value with one more is
// damaged, for the scripts too.
func TestLargestNumbersAreThoseOfTheScripts(t *testing.T) {
	client, ctx := redistest.Shared(t).Client(t), context.Background()
	script := remote.NewScript(client)
	const now = 1_800_000_000_000_000
	refused := func(key string, a limit.Algorithm) bool {
		rule, err := remote.NewRule(limit.PerHour(300), a)
		if a == limit.Concurrency() {
			rule, err = remote.NewSlotsRule(limit.Concurrent(300), 10*time.Second, remote.Holder{1})
		}
		if err != nil {
			t.Fatal(err)
		}
		replies, err := script.Run(ctx, []remote.Entry{{Key: key, Rule: rule, Operation: lua.Peek, Cost: 1}}, now)
		if err != nil {
			t.Fatal(err)
		}
		return replies[0].Status == remote.Unreadable
	}
	check := func(what string, a limit.Algorithm, damaged bool, put func(key string) error) {
		t.Helper()
		key := redistest.Prefix() + "k"
		if err := put(key); err != nil {
			t.Fatal(err)
		}
		_, err := state.Read(ctx, client, key, 0)
		if byScript := refused(key, a); errors.Is(err, state.ErrDamaged) != damaged || byScript != damaged || err != nil && !damaged {
			t.Errorf("%v, %s: %v; refused by the script: %v; want damaged: %v", a, what, err, byScript, damaged)
		}
	}

	counter := func(k, window, total int64) []byte {
		return append(pack(lua.TagCounter, now, number{2, k}, number{1, 1}, number{6, window}, number{6, total}), make([]byte, k+1)...)
	}
	ring := func(window, quota, head int64) []byte {
		return append(pack(lua.TagLog, now, number{6, window}, number{5, quota}, number{4, 2}, number{4, head}, number{4, 0}), make([]byte, 2*5)...)
	}
	debt := func(tat, quota, window, part int64) []byte {
		return pack(lua.TagGCRA, now, number{7, tat}, number{6, quota}, number{6, window}, number{6, part})
	}
	lines := func(total, last int64, n int) []byte {
		value := pack(lua.TagSlots, now, number{7, total}, number{7, last}, number{7, last})
		return append(value, make([]byte, 22*n)...)
	}
	strictly, log, gcra := limit.SlidingCounter(16, limit.Strict), limit.SlidingLog(), limit.GCRA()
	for _, c := range []struct {
		what      string
		algorithm limit.Algorithm
		damaged   bool
		value     []byte
	}{
		{"the last time", limit.FixedWindow(), false, pack(lua.TagFixedWindow, lua.EndOfTime-1, number{7, now}, number{6, 1})},
		{"later", limit.FixedWindow(), true, pack(lua.TagFixedWindow, lua.EndOfTime, number{7, now}, number{6, 1})},
		{"most units", limit.FixedWindow(), false, pack(lua.TagFixedWindow, now, number{7, now}, number{6, lua.MaxKeyUnits})},
		{"more units", limit.FixedWindow(), true, pack(lua.TagFixedWindow, now, number{7, now}, number{6, lua.MaxKeyUnits + 1})},
		{"most sub-windows", strictly, false, counter(limit.MaxBuckets, 1000, 0)},
		{"more sub-windows", strictly, true, counter(limit.MaxBuckets+1, 1000, 0)},
		{"shortest sub-windows", strictly, false, counter(limit.MaxBuckets, limit.MaxBuckets, 0)},
		{"sub-windows below a µs", strictly, true, counter(limit.MaxBuckets, limit.MaxBuckets-1, 0)},
		{"sub-windows far below a µs", strictly, true, counter(limit.MaxBuckets, 20, 0)}, // would keep a script from ending
		{"largest total", strictly, false, counter(4, 20, 2*lua.MaxKeyUnits)},
		{"larger total", strictly, true, counter(4, 20, 2*lua.MaxKeyUnits+1)},
		{"no earlier sub-windows", strictly, false, append(pack(lua.TagCounter, 3, number{2, limit.MaxBuckets}, number{1, 1}, number{6, 1000},
			number{6, 0}), make([]byte, limit.MaxBuckets+1)...)},
		{"nothing after the header", strictly, true, pack(lua.TagCounter, now)},
		{"longest window", log, false, ring(lua.LongestWindow, 2, 0)},
		{"longer window", log, true, ring(lua.LongestWindow+1, 2, 0)},
		{"largest quota", log, false, ring(1, lua.MaxLogUnits, 0)},
		{"larger quota", log, true, ring(1, lua.MaxLogUnits+1, 0)},
		{"a ring for its quota", log, false, ring(1, 2, 0)},
		{"a ring for more than its quota", log, true, ring(1, 1, 0)},
		{"nothing after the header", log, true, pack(lua.TagLog, now)},
		{"largest quota", gcra, false, debt(now, lua.MaxKeyUnits, 1, 0)},
		{"larger quota", gcra, true, debt(now, lua.MaxKeyUnits+1, 1, 0)},
		{"no quota", gcra, true, debt(now, 0, 1, 0)},
		{"longest window", gcra, false, debt(now, 7, lua.LongestWindow, 0)},
		{"longer window", gcra, true, debt(now, 7, lua.LongestWindow+1, 0)},
		{"longest debt", gcra, false, debt(now+8*lua.LongestWindow, 7, 1, 0)},
		{"longer debt", gcra, true, debt(now+8*lua.LongestWindow+1, 7, 1, 0)},
		{"debt below none", gcra, true, debt(now-1, 7, 1, 0)},
		{"largest part of a µs", gcra, false, debt(now, 7, 10, 6)},
		{"a whole µs", gcra, true, debt(now, 7, 10, 7)},
		{"most units", limit.Concurrency(), false, lines(lua.MaxHolders*lua.MaxKeyUnits, now+1, 1)},
		{"more units", limit.Concurrency(), true, lines(lua.MaxHolders*lua.MaxKeyUnits+1, now+1, 1)},
		{"longest life", limit.Concurrency(), false, lines(1, now+lua.LongestSlot, 1)},
		{"longer life", limit.Concurrency(), true, lines(1, now+lua.LongestSlot+1, 1)},
		{"most processes", limit.Concurrency(), false, lines(1, now+1, lua.MaxHolders)},
		{"more processes", limit.Concurrency(), true, lines(1, now+1, lua.MaxHolders+1)},
		{"no process", limit.Concurrency(), true, lines(1, now+1, 0)},
		{"no units", limit.Concurrency(), true, lines(0, now+1, 1)},
		{"all end before the first", limit.Concurrency(), true, append(pack(lua.TagSlots, now, number{7, 1}, number{7, now + 2}, number{7, now + 1}), make([]byte, 22)...)},
	} {
		check(c.what, c.algorithm, c.damaged, func(key string) error { return client.Set(ctx, key, c.value, time.Minute).Err() })
	}
	for _, c := range []struct {
		what                  string
		damaged               bool
		newest, window, quota float64
		units                 int
	}{
		{"longest window", false, -now, -lua.LongestWindow, -7, 1},
		{"longer window", true, -now, -lua.LongestWindow - 1, -7, 1},
		{"largest quota", false, -now, -1, -lua.MaxLogZSetUnits, 1},
		{"larger quota", true, -now, -1, -lua.MaxLogZSetUnits - 1, 1},
		{"as many units as the quota", false, -now, -1, -2, 2},
		{"more units than the quota", true, -now, -1, -2, 3},
		{"the last time", false, -lua.EndOfTime + 1, -1, -2, 1},
		{"later", true, -lua.EndOfTime, -1, -2, 1},
		{"a fraction", true, -now, -1.5, -2, 1},
	} {
		check(c.what, limit.SlidingLogZSet(), c.damaged, func(key string) error {
			members := []redis.Z{{Score: 0, Member: "\x00offset"}, {Score: c.newest, Member: "\x00newest"}, {Score: c.window, Member: "\x00longest"}, {Score: c.quota, Member: "\x00keep"}}
			for i := range c.units {
				members = append(members, redis.Z{Score: now, Member: strings.Repeat("m", i+1)})
			}
			return client.ZAdd(ctx, key, members...).Err()
		})
	}
}

// The units of processes whose lines the scripts drop do not count.
func TestLinesThatTheScriptsDrop(t *testing.T) {
	client, ctx := redistest.Shared(t).Client(t), context.Background()
	script := remote.NewScript(client)
	const now, last = 1_800_000_000_000_000, 1_800_000_000_000_000 + 1_000_000
	value := pack(lua.TagSlots, now, number{7, 6}, number{7, now}, number{7, last})
	for i, h := range []state.Holder{{Until: last, Units: 2}, {Until: now, Units: 1}, {Until: last + 1, Units: 1}, {Until: last, Units: 0}, {Until: last, Units: lua.MaxKeyUnits + 1}, {Until: now + 1, Units: 3}} {
		value = appendNumbers(value, number{8, int64(i + 1)}, number{7, h.Until}, number{7, h.Units})
	}
	key := redistest.Prefix() + "k"
	if err := client.Set(ctx, key, value, time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	rule, err := remote.NewSlotsRule(limit.Concurrent(300), 10*time.Second, remote.Holder{1})
	if err != nil {
		t.Fatal(err)
	}
	replies, err := script.Run(ctx, []remote.Entry{{Key: key, Rule: rule, Operation: lua.Peek, Cost: 1}}, now)
	if err != nil {
		t.Fatal(err)
	}
	want := []state.Holder{{ID: 6, Until: now + 1, Units: 3}, {ID: 1, Until: last, Units: 2}}
	s, err := state.Decode(value, now, 0)
	if err != nil || !slices.Equal(s.Holders, want) || s.Used() != 5 || replies[0].Remaining != 295 {
		t.Errorf("%+v, %v; want %+v. The script has %d units free", s, err, want, replies[0].Remaining)
	}
}

// A rule whose window was changed counts the units that its new window still has. Decode, given that window, counts
// the same.
func TestARuleWithAnotherWindow(t *testing.T) {
	client, ctx := redistest.Shared(t).Client(t), context.Background()
	script := remote.NewScript(client)
	const now = 1_800_000_000_000_000 // the beginning of an hour
	for _, algorithm := range []limit.Algorithm{limit.SlidingLog(), limit.SlidingLogZSet(), limit.FixedWindow()} {
		key, capacity := redistest.Prefix()+"k", int64(20)
		ask := func(window time.Duration, clock int64, operation int) remote.Reply {
			rule, err := remote.NewRule(limit.Per(capacity, window), algorithm)
			if err != nil {
				t.Fatal(err)
			}
			replies, err := script.Run(ctx, []remote.Entry{{Key: key, Rule: rule, Operation: operation, Cost: 1}}, clock)
			if err != nil {
				t.Fatal(err)
			}
			return replies[0]
		}
		minute := time.Minute.Microseconds()
		for i := range int64(6) { // one each ten minutes
			ask(time.Hour, now+10*i*minute, lua.Take)
		}
		for _, window := range []time.Duration{30 * time.Minute, time.Hour, 2 * time.Hour} {
			for _, clock := range []int64{now + 50*minute, now + 59*minute, now + 61*minute, now + 95*minute} {
				counted := capacity - ask(window, clock, lua.Peek).Remaining
				var s *state.State
				var err error
				if algorithm == limit.SlidingLogZSet() {
					var members []state.Member
					for _, z := range client.ZRangeWithScores(ctx, key, 0, -1).Val() {
						members = append(members, state.Member{Name: z.Member.(string), Score: z.Score})
					}
					s, err = state.DecodeSortedSet(members, clock, window.Microseconds())
				} else {
					s, err = state.Decode([]byte(client.Get(ctx, key).Val()), clock, window.Microseconds())
				}
				if err != nil || s.Used() != counted {
					t.Errorf("%v, a window of %v, %d minutes later: %+v, %v; the script counts %d", algorithm, window, (clock-now)/minute, s, err, counted)
				}
			}
		}
	}
}

// The debt of a GCRA key is shown as whole units, of which the first leaves when the fraction of a unit is over.
func TestWhenUnitsOfADebtLeave(t *testing.T) {
	const now, second = 1_800_000_000_000_000, 1_000_000
	s, err := state.Decode(pack(lua.TagGCRA, now, number{7, now + 2*second + second/2}, number{6, 10}, number{6, 10 * second}), now, 0)
	want := state.Units{Count: 3, LeavesFrom: now + second/2, LeavesUntil: now + 2*second + second/2}
	if err != nil || len(s.Units) != 1 || s.Units[0] != want {
		t.Errorf("%+v, %v", s, err)
	}
}

// A fixed window whose end was overwritten with 0 is over, as it is for the script.
func TestADamagedEndIsOver(t *testing.T) {
	const now = 1_800_000_000_000_000
	s, err := state.Decode(pack(lua.TagFixedWindow, now, number{7, 0}, number{6, 3}), now, 0)
	if err != nil || s.Used() != 0 {
		t.Errorf("%+v, %v", s, err)
	}
}

// What cannot be read is reported as such, and not as an empty or a damaged key. What can be read has its time and
// its expiry.
func TestReadingFails(t *testing.T) {
	server, ctx := redistest.Start(t), context.Background()
	admin := server.Client(t)
	rule, err := remote.NewRule(limit.PerHour(20), limit.SlidingLogZSet())
	if err != nil {
		t.Fatal(err)
	}
	started := time.Now()
	if _, err := remote.NewScript(admin).Run(ctx, []remote.Entry{{Key: "zset", Rule: rule, Cost: 3}}, 0); err != nil {
		t.Fatal(err)
	}
	got, err := state.Read(ctx, admin, "zset", 0)
	if clock := time.UnixMicro(got.Clock); err != nil || clock.Before(started.Add(-time.Minute)) || clock.After(time.Now().Add(time.Minute)) ||
		got.Expires <= 50*time.Minute || got.Expires > 2*time.Hour {
		t.Errorf("%+v, %v", got, err)
	}
	admin.Set(ctx, "other", "hello", 0)
	admin.Do(ctx, "ACL", "SETUSER", "reader", "on", ">secret", "~zset", "+hello", "+client", "+time", "+get", "+pttl")
	if got, err := state.Read(ctx, server.Client(t, func(o *redis.Options) { o.Username, o.Password = "reader", "wrong" }), "zset", 0); err == nil {
		t.Errorf("with a wrong password: %+v", got)
	}
	reader := server.Client(t, func(o *redis.Options) { o.Username, o.Password = "reader", "secret" })
	results, err := state.ReadAll(ctx, reader, []string{"zset", "other"}, make([]int64, 2))
	if err != nil || len(results) != 2 {
		t.Fatalf("%+v, %v", results, err)
	}
	for i, r := range results {
		if !redis.HasErrorPrefix(r.Err, "NOPERM") || r.State != nil {
			t.Errorf("without the right to read key %d: %+v", i, r)
		}
	}
}
