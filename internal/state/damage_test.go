package state_test

import (
	"bytes"
	"context"
	"errors"
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

// A value is said to be damaged exactly if the script refuses to decide on it, whatever was done to the value. And
// what can be decoded has no impossible number.
func TestDamagedIsWhatTheScriptsRefuse(t *testing.T) {
	client, ctx := redistest.Shared(t).Client(t), context.Background()
	script := remote.NewScript(client)
	const now = 1_800_000_000_000_000
	slots, err := remote.NewSlotsRule(limit.Concurrent(300), 10*time.Second, remote.Holder{1})
	if err != nil {
		t.Fatal(err)
	}
	rules := []*remote.Rule{slots}
	for _, algorithm := range algorithms {
		for _, l := range []limit.Limit{limit.PerHour(7), limit.PerDay(300)} {
			rule, err := remote.NewRule(l, algorithm)
			if err != nil {
				t.Fatal(err)
			}
			rules = append(rules, rule)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		rule, key := rapid.SampledFrom(rules).Draw(t, "rule"), redistest.Prefix()+"k"
		ask := func(clock int64, operation int, cost int64) remote.Reply {
			replies, err := script.Run(ctx, []remote.Entry{{Key: key, Rule: rule, Operation: operation, Cost: cost}}, clock)
			if err != nil {
				t.Fatal(err)
			}
			return replies[0]
		}
		for i := range rapid.Int64Range(1, 7).Draw(t, "charges") {
			ask(now+i*1000, lua.Take, 1)
		}
		if rapid.Bool().Draw(t, "the clock stepped back") {
			ask(now, lua.Take, 1)
		}
		if client.Type(ctx, key).Val() == "zset" {
			damageMembers(t, client, key)
		} else {
			client.Set(ctx, key, damaged(t, client.Get(ctx, key).Val()), time.Hour)
		}
		clock := now + rapid.Int64Range(0, 10_000_000).Draw(t, "later")
		got, err := state.Read(ctx, client, key, 0)
		refused := ask(clock, lua.Peek, 1).Status == remote.Unreadable
		if isDamaged := errors.Is(err, state.ErrDamaged) || errors.Is(err, state.ErrUnknown); isDamaged != refused || err != nil && !isDamaged {
			t.Fatalf("%+v, %v; the script refuses it: %v", got.State, err, refused)
		}
		if s := got.State; s != nil {
			for _, u := range s.Units {
				if u.Count < 1 || u.ChargedFrom < 0 || u.ChargedFrom > u.ChargedUntil || u.ChargedUntil > s.Now || u.LeavesUntil < 0 {
					t.Fatalf("%+v of %+v", u, s)
				}
			}
		}
	})
}

// Leases and holds have the bounds that the script knows, so that no sum of them overflows.
func TestDamagedLeasesAndHolds(t *testing.T) {
	full := func(tag byte, header, size, lines int) []byte {
		value := append([]byte{tag}, make([]byte, header-1)...)
		return append(value, bytes.Repeat([]byte{0xff}, size*lines)...)
	}
	if leases, err := state.DecodeLeases(full(lua.TagLeases, 1, 22, 1)); !errors.Is(err, state.ErrDamaged) {
		t.Errorf("%v, %v", leases, err)
	}
	if leases, err := state.DecodeLeases(noUnits(lua.MaxLeases + 1)); !errors.Is(err, state.ErrDamaged) {
		t.Errorf("%v, %v", leases, err)
	}
	if leases, err := state.DecodeLeases(noUnits(2)[:30]); !errors.Is(err, state.ErrDamaged) {
		t.Errorf("%v, %v", leases, err)
	}
	if leases, err := state.DecodeLeases(noUnits(lua.MaxLeases)); err != nil || len(leases) != lua.MaxLeases {
		t.Errorf("%v, %v", leases, err)
	}
	if _, err := state.DecodeHolds(full(lua.TagHolds, lua.HeaderBytes, 30, lua.MaxHolds+1)); !errors.Is(err, state.ErrDamaged) {
		t.Error(err)
	}
	free := full(lua.TagHolds, lua.HeaderBytes, 30, lua.MaxHolds)
	if holds, err := state.DecodeHolds(free); err != nil || len(holds) > 0 {
		t.Errorf("%v, %v", holds, err)
	}
	holds, err := state.DecodeHolds(bytes.ReplaceAll(free, []byte{0xff}, []byte{0xfe}))
	if err != nil || len(holds) != lua.MaxHolds || holds[0].Units != lua.MaxKeyUnits || holds[0].Ends != lua.EndOfTime || holds[0].Charged != lua.EndOfTime {
		t.Errorf("%v, %v", holds, err)
	}
	late := append([]byte{lua.TagHolds}, bytes.Repeat([]byte{0xff}, lua.HeaderBytes-1)...)
	if _, err := state.DecodeHolds(late); !errors.Is(err, state.ErrDamaged) {
		t.Error(err)
	}
}

// noUnits returns n leases without units.
func noUnits(n int) []byte { return append([]byte{lua.TagLeases}, make([]byte, 22*n)...) }

// damaged returns a value with some other bytes, mostly among its first numbers, or with another length.
func damaged(t *rapid.T, value string) string {
	text := []byte(value)
	from := rapid.IntRange(0, min(len(text), 70)).Draw(t, "from")
	until := min(len(text), from+rapid.IntRange(0, 7).Draw(t, "bytes"))
	switch part := text[from:until]; rapid.IntRange(0, 5).Draw(t, "damage") {
	case 0:
		copy(part, bytes.Repeat([]byte{0}, len(part)))
	case 1:
		copy(part, bytes.Repeat([]byte{0xff}, len(part)))
	case 2, 3:
		copy(part, rapid.SliceOfN(rapid.Byte(), len(part), len(part)).Draw(t, "random"))
	case 4:
		return value[:from] + value[until:]
	case 5:
		return value + strings.Repeat(value[from:], rapid.IntRange(0, 300).Draw(t, "times"))
	}
	return string(text)
}

// damageMembers changes the score of a member of a sorted set, or removes or adds members.
func damageMembers(t *rapid.T, client *redis.Client, key string) {
	ctx := context.Background()
	members := client.ZRange(ctx, key, 0, -1).Val()
	member := rapid.SampledFrom(append(members, "\x00other", "other")).Draw(t, "member")
	if rapid.IntRange(0, 9).Draw(t, "removed") == 0 {
		client.ZRem(ctx, key, member)
		return
	}
	score := rapid.OneOf(rapid.Float64(), rapid.Map(rapid.Int64(), func(n int64) float64 { return float64(n) }),
		rapid.SampledFrom([]float64{0, -0.5, 1, -1, 1 << 52, -1 << 52, 1 << 53, -1 << 53, 9e18, -9e18, -5001})).Draw(t, "score")
	client.ZAdd(ctx, key, redis.Z{Score: score, Member: member})
}
