package state_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/internal/state"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

func TestMain(m *testing.M) { redistest.Main(m) }

var algorithms = []limit.Algorithm{
	limit.SlidingLog(), limit.SlidingLogZSet(), limit.SlidingCounter(1, limit.Strict), limit.SlidingCounter(16, limit.Strict),
	limit.SlidingCounter(4, limit.Estimate), limit.SlidingCounter(limit.MaxBuckets, limit.Strict), limit.GCRA(), limit.FixedWindow(),
}

// decode decodes a key's value at a virtual time.
func decode(t *rapid.T, client *redis.Client, key string, now, window int64) *state.State {
	ctx := context.Background()
	kind := client.Type(ctx, key).Val()
	var s *state.State
	var err error
	switch kind {
	case "none":
		return &state.State{}
	case "zset":
		var members []state.Member
		for _, z := range client.ZRangeWithScores(ctx, key, 0, -1).Val() {
			members = append(members, state.Member{Name: z.Member.(string), Score: z.Score})
		}
		s, err = state.DecodeSortedSet(members, now, window)
	default:
		value := []byte(client.Get(ctx, key).Val())
		s, err = state.Decode(value, now, window)
		for _, damaged := range [][]byte{value[:len(value)-1], append(slices.Clone(value), 0)} {
			if _, err := state.Decode(damaged, now, window); !errors.Is(err, state.ErrDamaged) {
				t.Fatalf("%d bytes in place of %d: %v", len(damaged), len(value), err)
			}
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Values that the scripts wrote on a real Redis are decoded to the units that the scripts count. This holds under
// every algorithm and encoding, at every time at which units leave.
func TestDecodedIsWhatTheScriptsCount(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	script, ctx := remote.NewScript(client), context.Background()
	for _, algorithm := range algorithms {
		t.Run(algorithm.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				// Windows of a week have stamps of six bytes.
				window := rapid.SampledFrom([]time.Duration{time.Second, 10 * time.Second, 7 * time.Hour, 7 * 24 * time.Hour}).Draw(t, "window")
				l := limit.Per(rapid.SampledFrom([]int64{3, 7, 50, 300}).Draw(t, "quota"), window)
				rule, err := remote.NewRule(l, algorithm)
				if err != nil {
					t.Fatal(err)
				}
				key := redistest.Prefix() + "k"
				now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC).UnixMicro() + rapid.Int64Range(0, window.Microseconds()).Draw(t, "start")
				ask := func(operation int, cost int64) remote.Reply {
					replies, err := script.Run(ctx, []remote.Entry{{Key: key, Rule: rule, Operation: operation, Cost: cost}}, now)
					if err != nil {
						t.Fatal(err)
					}
					return replies[0]
				}
				charged := map[int64]int64{} // units, by the key's own time
				for range rapid.IntRange(1, 12).Draw(t, "charges") {
					reply := ask(lua.TakeUpTo, rapid.Int64Range(1, l.Quota()).Draw(t, "cost"))
					charged[reply.Stamp] += reply.Granted
					now += rapid.Int64Range(0, window.Microseconds()/3).Draw(t, "pause")
					if rapid.IntRange(0, 9).Draw(t, "step") == 0 {
						now -= rapid.Int64Range(0, window.Microseconds()/2).Draw(t, "back")
						reply := ask(lua.TakeUpTo, 1) // by this call the key notices the step
						charged[reply.Stamp] += reply.Granted
					}
				}
				decoded := decode(t, client, key, now, window.Microseconds())
				began, from := now, decoded.Units
				if len(from) > 0 && decoded.Algorithm != algorithm.Name() {
					t.Fatalf("the algorithm is %q", decoded.Algorithm)
				}
				if decoded.Window != 0 && decoded.Window != window.Microseconds() || decoded.Quota != 0 && decoded.Quota != l.Quota() {
					t.Fatalf("%v of %d units in %d µs", l, decoded.Quota, decoded.Window)
				}
				for i, u := range from {
					if algorithm == limit.GCRA() {
						break // GCRA does not say when units were charged
					}
					units := int64(0)
					for at, granted := range charged {
						if u.ChargedFrom <= at && at <= u.ChargedUntil {
							units += granted
						}
					}
					if units != u.Count || u.ChargedUntil > decoded.Newest || i > 0 && u.ChargedFrom <= from[i-1].ChargedUntil {
						t.Fatalf("%d of %+v, of charges %v", i, from, charged)
					}
					if whole := window.Microseconds(); algorithm.Buckets() == 0 && (u.LeavesFrom != u.ChargedFrom+whole || u.LeavesUntil != u.LeavesFrom) ||
						algorithm.Buckets() > 0 && (u.LeavesFrom < u.ChargedFrom+whole || u.LeavesFrom > u.ChargedFrom+whole+1) {
						t.Fatalf("%d of %+v leaves at another time", i, from)
					}
				}
				times := []int64{now}
				for _, u := range from {
					for _, at := range []int64{u.LeavesFrom, u.LeavesUntil} {
						times = append(times, at-decoded.Offset-1, at-decoded.Offset)
					}
				}
				for _, now = range times {
					if now < began {
						continue
					}
					counted := algorithm.Capacity(l) - ask(lua.Peek, 1).Remaining
					s := decode(t, client, key, now, window.Microseconds())
					if algorithm.Rounding() == limit.Estimate && algorithm.Buckets() > 0 {
						if s.Used() < counted { // the script counts only a part of the oldest sub-window
							t.Fatalf("at %d: decoded %d, the script counts %d", now, s.Used(), counted)
						}
						continue
					}
					if first := append(slices.Clone(from), state.Units{})[0]; algorithm == limit.GCRA() && now+decoded.Offset <= first.LeavesFrom &&
						(now+decoded.Offset < first.LeavesFrom) != (counted == first.Count) {
						t.Fatalf("%d µs later the script counts %d: %+v", now-began, counted, first)
					}
					if s.Used() != counted {
						t.Fatalf("%v of %v, %d µs later: decoded %d (%+v), the script counts %d", algorithm, l, now-began, s.Used(), s.Units, counted)
					}
					// The leaving times from the first decoding are still right.
					still := int64(0)
					for _, u := range from {
						if u.LeavesUntil > now+decoded.Offset {
							still += u.Count
						}
					}
					if algorithm != limit.GCRA() && still != counted {
						t.Fatalf("%d µs later %d were to be left, the script counts %d", now-began, still, counted)
					}
				}
			})
		})
	}
}

// Read reports a live key's units on Redis's own clock, those of a fixed window and leased units included, and
// DecodeLeases reports the leases. Reading changes nothing, and says what a foreign value is.
func TestReadOnRedis(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	script, ctx := remote.NewScript(client), context.Background()
	for _, algorithm := range algorithms {
		key := redistest.Prefix() + "k"
		rule, err := remote.NewRule(limit.PerHour(20), algorithm)
		if err != nil {
			t.Fatal(err)
		}
		lease := remote.Entry{Key: key, Rule: rule, Operation: lua.Lease, Cost: 4, Lease: &remote.Lease{ID: 9, Most: 8, Life: time.Second}}
		if _, err := script.Run(ctx, []remote.Entry{lease, {Key: key, Rule: rule, Cost: 3}}, 0); err != nil {
			t.Fatal(err)
		}
		before := client.Dump(ctx, key).Val()
		got, err := state.Read(ctx, client, key, 0)
		if err != nil || got.State == nil || got.State.Used() != 7 {
			t.Fatalf("%v: %+v, %v; want 7 units", algorithm, got.State, err)
		}
		last := got.State.Units[len(got.State.Units)-1]
		if left := time.Duration(last.LeavesUntil-got.State.Now) * time.Microsecond; left <= 0 || left > 2*time.Hour {
			t.Errorf("%v: the last leaves in %v", algorithm, left)
		}
		if client.Dump(ctx, key).Val() != before {
			t.Errorf("%v: reading has changed the key", algorithm)
		}
		raw, err := client.Get(ctx, remote.Keyspace{}.Related(key).Lease).Bytes()
		if err != nil {
			t.Fatal(err)
		}
		if leases, err := state.DecodeLeases(raw); err != nil || len(leases) != 1 || leases[0].Units != 4 || leases[0].ID != 9 || leases[0].Ends <= got.Clock-int64(time.Second) {
			t.Errorf("%v: leases %+v, %v", algorithm, leases, err)
		}
	}

	key := redistest.Prefix() + "k"
	if got, err := state.Read(ctx, client, key, 0); err != nil || got.State != nil {
		t.Errorf("nothing: %+v, %v", got, err)
	}
	for value, want := range map[string]error{"": state.ErrDamaged, "hello": state.ErrUnknown, "\x01": state.ErrDamaged, "\x05123456789012345": state.ErrDamaged, "\xc8": state.ErrUnknown} {
		client.Set(ctx, key, value, time.Minute)
		if _, err := state.Read(ctx, client, key, 0); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", value, err, want)
		}
	}
	client.Del(ctx, key)
	client.ZAdd(ctx, key, redis.Z{Score: 1, Member: "other"})
	if _, err := state.Read(ctx, client, key, 0); !errors.Is(err, state.ErrDamaged) {
		t.Errorf("another sorted set: %v", err)
	}
	client.Del(ctx, key)
	client.HSet(ctx, key, "a", "b")
	if _, err := state.Read(ctx, client, key, 0); !errors.Is(err, state.ErrUnknown) {
		t.Errorf("a hash: %v", err)
	}
	ended, end := context.WithCancel(ctx)
	end()
	if _, err := state.Read(ended, client, key, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("without an answer: %v", err)
	}
}

// The units that processes hold, and the holds for costs that are known only afterwards, are decoded as they were
// requested on a real Redis.
func TestHeldOnRedis(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	script, ctx := remote.NewScript(client), context.Background()
	const now, ttl, life = 1_800_000_000_000_000, 10 * time.Second, 5 * time.Second
	user := remote.NewUserKey(redistest.Prefix())
	keyspace, err := remote.NewKeyspace("tl")
	if err != nil {
		t.Fatal(err)
	}
	related := keyspace.Related(keyspace.Key("r", user))
	run := func(clock int64, e remote.Entry) {
		t.Helper()
		e.Key = string(user)
		if replies, err := script.Run(ctx, []remote.Entry{e}, clock); err != nil || replies[0].Status != remote.Allowed {
			t.Fatalf("%+v, %v", replies, err)
		}
	}
	want := []state.Holder{{ID: 2, Units: 3, Until: now + ttl.Microseconds()}, {ID: 1, Units: 4, Until: now + ttl.Microseconds() + 7}}
	for _, h := range []state.Holder{want[1], want[0]} {
		slots, err := remote.NewSlotsRule(limit.Concurrent(10), time.Duration(h.Until-now)*time.Microsecond, remote.Holder{7: byte(h.ID)})
		if err != nil {
			t.Fatal(err)
		}
		run(now, remote.Entry{Rule: slots.Named(keyspace, "r", nil), Cost: h.Units})
	}
	value := []byte(client.Get(ctx, related.Slots).Val())
	for after, dead := range map[int64]int{0: 0, ttl.Microseconds() - 1: 0, ttl.Microseconds(): 1, ttl.Microseconds() + 7: 2} {
		s, err := state.Decode(value, now+after, 0)
		used := []int64{7, 4, 0}[dead]
		if err != nil || s.Algorithm != "concurrency" || s.Used() != used || !slices.Equal(s.Holders, want[dead:]) {
			t.Fatalf("%d µs later: %+v, %v; want %d units of %+v", after, s, err, used, want[dead:])
		}
	}

	rule, err := remote.NewRule(limit.PerHour(20), limit.SlidingLog())
	if err != nil {
		t.Fatal(err)
	}
	kept := rule.Named(keyspace, "r", nil)
	held := []state.Hold{
		{ID: 9, Charged: now, Ends: now + life.Microseconds(), Units: 3},
		{ID: 1 << 63, GivesBack: true, Charged: now + 5, Ends: now + 5 + life.Microseconds(), Units: 8},
	}
	for _, h := range held {
		rule := kept
		if h.GivesBack {
			rule = kept.GivesBack()
		}
		run(h.Charged, remote.Entry{Rule: rule, Operation: lua.Hold, Cost: h.Units, Hold: &remote.Hold{ID: h.ID, Life: life}})
	}
	value = []byte(client.Get(ctx, related.Holds).Val())
	if holds, err := state.DecodeHolds(value); err != nil || !slices.Equal(holds, held) {
		t.Errorf("%+v, %v; want %+v", holds, err, held)
	}
	for value, want := range map[string]error{"": state.ErrDamaged, "hello": state.ErrUnknown, "\x08": state.ErrDamaged, "\x0812345678901234x": state.ErrDamaged} {
		if _, err := state.DecodeHolds([]byte(value)); !errors.Is(err, want) {
			t.Errorf("holds %q: %v, want %v", value, err, want)
		}
	}
	for _, value := range []string{"\x0a12345678901234", "\x0a12345678901234" + strings.Repeat("x", 21), "\x0a12345678901234" + strings.Repeat("x", 22+21)} {
		if _, err := state.Decode([]byte(value), now, 0); !errors.Is(err, state.ErrDamaged) {
			t.Errorf("slots %q: %v", value, err)
		}
	}
}

// A value of the right length is damaged if its parameters are impossible, and only then.
func TestDamagedParameters(t *testing.T) {
	check := func(damaged bool, size int, tag byte, widthsAndNumbers ...int64) {
		t.Helper()
		value := append([]byte{tag}, make([]byte, lua.HeaderBytes-1)...)
		for i := 0; i < len(widthsAndNumbers); i += 2 {
			for shift := 8 * (widthsAndNumbers[i] - 1); shift >= 0; shift -= 8 {
				value = append(value, byte(widthsAndNumbers[i+1]>>shift))
			}
		}
		if _, err := state.Decode(append(value, make([]byte, size)...), 1, 0); damaged != errors.Is(err, state.ErrDamaged) || !damaged && err != nil {
			t.Errorf("%d %v: %v", tag, widthsAndNumbers, err)
		}
	}
	const most = 1<<48 - 1
	check(true, 0, lua.TagGCRA, 7, 1<<56-1, 6, most, 6, 1) // more units than can be represented
	for a := range int64(3) {
		for b := range int64(3) {
			check(a < 1 || b < 1, 0, lua.TagGCRA, 7, 0, 6, a, 6, b)
			for _, width := range []int64{0, 1, 6, 7} {
				check(a < 1 || b < a || width < 1 || width > 6, int((a+1)*width), lua.TagCounter, 2, a, 1, width, 6, b, 6, 0)
			}
			for head := range int64(3) {
				check(b > a || head >= a, int(5*a), lua.TagLog, 6, 1, 5, 2, 4, a, 4, head, 4, b)
			}
		}
	}
}

func TestMarker(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "1099511627776": 1 << 40, "": -1, "-1": -1, "1x": -1} {
		got, err := state.DecodeMarker(text)
		if want < 0 != errors.Is(err, state.ErrDamaged) || err == nil && got != want {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
}

// Decoding never panics, whatever the value is.
func FuzzDecode(f *testing.F) {
	for tag := range byte(11) {
		for _, size := range []int{1, 15, 21, 34, 38, 40, 60} {
			value := make([]byte, size)
			for i := range value {
				value[i] = byte(i)
			}
			value[0] = tag
			copy(value[min(size, 8):], make([]byte, min(size-min(size, 8), 7))) // an offset of 0: others are refused with the header
			f.Add(value)
		}
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		s, err := state.Decode(value, 1_800_000_000_000_000, 0)
		if (s == nil) == (err == nil) {
			t.Errorf("%+v, %v", s, err)
		}
		_, _ = state.DecodeLeases(value)
		_, _ = state.DecodeHolds(value)
	})
}
