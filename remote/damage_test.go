package remote

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
)

// Law 7: a value whose content does not match its first byte makes its own entry unreadable, under every algorithm,
// and stays as it is. The other entries of the batch are decided.
func TestLaw7ADamagedValueFailsItsOwnEntryOnly(t *testing.T) {
	client, ctx := redistest.Shared(t).Client(t), context.Background()
	script := NewScript(client)
	ff := strings.Repeat("\xff", 60)
	now := string(appendInt(nil, time.Now().UnixMicro(), 7)) + "\x00\x00\x00\x00\x00\x00\x00"
	ten := "\x00\x00\x00\x00\x00\x0a"
	list := func(key string) { client.RPush(ctx, key, "a", "b") }
	text := func(value string) func(string) {
		return func(key string) { client.Set(ctx, key, value, time.Hour) }
	}
	set := func(members ...redis.Z) func(string) {
		return func(key string) { client.ZAdd(ctx, key, members...) }
	}
	for name, put := range map[string]func(key string){
		"a list":                                           list,
		"tag 0":                                            text("\x00" + strings.Repeat("\x00", 14)),
		"a log without fields":                             text("\x01" + strings.Repeat("\x00", 14)),
		"a log without slots":                              text("\x01" + now + strings.Repeat("\x00", 23)),
		"a log of 2^32 slots":                              text("\x02" + now + ff),
		"a counter without fields":                         text("\x03" + now),
		"a counter of 65,536 sub-windows":                  text("\x03" + now + ff),
		"a counter of no sub-windows":                      text("\x03" + now + "\x00\x00\x01" + ten + ten + "\x00"),
		"a counter without a window":                       text("\x03" + now + "\x00\x01\x01" + ten[:5] + "\x00" + ten + "\x00\x00"),
		"a counter of counts without bytes":                text("\x03" + now + "\x00\x01\x00" + ten + ten),
		"a counter of counts of 7 bytes":                   text("\x03" + now + "\x00\x01\x07" + ten + ten + strings.Repeat("\x00", 14)),
		"a counter with half of its counts":                text("\x03" + now + "\x00\x01\x01" + ten + ten + "\x00"),
		"a counter of more units than are charged":         text("\x03" + now + "\x00\x01\x01" + ten + ff[:6] + "\x00\x00"),
		"a GCRA without fields":                            text("\x04" + now),
		"a GCRA without a limit":                           text("\x04" + now + strings.Repeat("\x00", 19)),
		"a GCRA of a limit without a window":               text("\x04" + now + now[:7] + ten + ten[:5] + "\x00"),
		"a GCRA of the far future":                         text("\x04" + now + ff[:19]),
		"a fixed window without a count":                   text("\x05" + now),
		"a fixed window charged in the far future":         text("\x05" + ff[:7] + strings.Repeat("\x00", 20)),
		"a fixed window with an offset beyond its clock":   text("\x05" + now[:7] + ff[:7] + strings.Repeat("\x00", 13)),
		"a sorted set in a string":                         text("\x06" + now + ff),
		"a sorted set with one mark":                       set(redis.Z{Score: 0, Member: "\x00offset"}),
		"a sorted set with an offset that is no number":    set(redis.Z{Score: 0.5, Member: "\x00offset"}, redis.Z{Score: -1, Member: "\x00newest"}),
		"a sorted set that keeps more than a log can":      set(redis.Z{Member: "\x00offset"}, redis.Z{Score: -1, Member: "\x00newest"}, redis.Z{Score: -1, Member: "\x00longest"}, redis.Z{Score: -1 << 40, Member: "\x00keep"}),
		"a sorted set with more units than it should keep": set(redis.Z{Member: "\x00offset"}, redis.Z{Score: -1, Member: "\x00newest"}, redis.Z{Score: -1, Member: "\x00longest"}, redis.Z{Score: 0, Member: "\x00keep"}, redis.Z{Score: 1, Member: "u"}),
	} {
		t.Run(name, func(t *testing.T) {
			for _, a := range configurations() {
				prefix := redistest.Prefix()
				rule := newRule(t, limit.PerHour(10), a)
				put(prefix + "damaged")
				before := client.Dump(ctx, prefix+"damaged").Val()
				entries := []Entry{{Key: prefix + "a", Rule: rule, Cost: 1}, {Key: prefix + "damaged", Rule: rule, Cost: 1}, {Key: prefix + "b", Rule: rule, Cost: 1}}
				for range 2 { // the second time the other keys have a state
					replies := runAll(t, script, entries)
					if replies[0].Status != Allowed && a != limit.GCRA() || replies[1].Status != Unreadable || replies[2].Status != replies[0].Status {
						t.Errorf("%v: %+v", a, replies)
					}
				}
				if r := runAll(t, script, entries[1:2])[0]; r.Status != Unreadable {
					t.Errorf("%v, alone: %+v", a, r)
				}
				if after := client.Dump(ctx, prefix+"damaged").Val(); after != before {
					t.Errorf("%v: it was overwritten", a)
				}
				// Forget works on a value that cannot be read.
				if r := runAll(t, script, []Entry{{Key: prefix + "damaged", Rule: rule, Cost: 1, Operation: lua.Forget}})[0]; r.Status != Allowed {
					t.Errorf("%v: forgetting it: %+v", a, r)
				}
				if r := runAll(t, script, entries[1:2])[0]; r.Status != Allowed {
					t.Errorf("%v, after it was forgotten: %+v", a, r)
				}
			}
		})
	}
}

// Laws 7 and 9: the script notices that a long ring has been cut off before it writes anything of the ring's group.
func TestLaw7ACutOffRingHoldsItsGroupBack(t *testing.T) {
	client, ctx := redistest.Shared(t).Client(t), context.Background()
	script := NewScript(client)
	rule := newRule(t, limit.PerHour(300), limit.SlidingLog())
	prefix := redistest.Prefix()
	group := []Entry{{Key: prefix + "a", Rule: rule, Cost: 1, Group: 1}, {Key: prefix + "b", Rule: rule, Cost: 1, Group: 1}}
	for i := range group {
		decide(t, script, group[i].Key, rule, 0, 200)
		decide(t, script, group[i].Key, rule, 0, 1)
	}
	if replies := runAll(t, script, group); replies[0].Status != Allowed || replies[1].Status != Allowed {
		t.Fatalf("%+v", replies)
	}
	for cut := range group {
		whole := client.Get(ctx, group[cut].Key).Val()
		value := whole[:len(whole)-1]
		client.Set(ctx, group[cut].Key, value, time.Hour)
		replies := runAll(t, script, group)
		if replies[cut].Status != Unreadable || replies[1-cut].Status != HeldBack || replies[1-cut].Remaining != 98 {
			t.Errorf("the ring of entry %d is cut off: %+v", cut, replies)
		}
		if client.Get(ctx, group[cut].Key).Val() != value {
			t.Errorf("the ring of entry %d was written", cut)
		}
		client.Set(ctx, group[cut].Key, whole, time.Hour)
	}
}

// damageRange bounds the reset, retry and expiry times of a damaged value: eight times the longest possible window.
// Under algorithms other than GCRA, which keep no debt, the bound is two of the rule's own windows.
const damageRange = 8 * limit.MaxWindow

// drawDamage draws a damaged version of a value.
func drawDamage(t *rapid.T, value string) string {
	at := rapid.IntRange(0, max(0, min(len(value), 60)-1)).Draw(t, "at")
	if rapid.IntRange(0, 9).Draw(t, "anywhere") == 0 {
		at = rapid.IntRange(0, max(0, len(value)-1)).Draw(t, "at")
	}
	some := func() int { return min(rapid.IntRange(1, 8).Draw(t, "bytes"), len(value)-at) }
	switch rapid.IntRange(0, 6).Draw(t, "damage") {
	case 0:
		return string(rapid.SliceOfN(rapid.Byte(), 1, 200).Draw(t, "random"))
	case 1:
		return value[:at]
	case 2:
		return value + string(rapid.SliceOfN(rapid.Byte(), 1, 150).Draw(t, "more"))
	case 3:
		if value == "" {
			return "\x01"
		}
		flipped := []byte(value)
		flipped[at] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		return string(flipped)
	case 4:
		return value[:at] + strings.Repeat("\x00", some()) + value[at+some():]
	case 5:
		n := some()
		return value[:at] + strings.Repeat("\xff", n) + value[at+n:]
	}
	n := some()
	return value[:at] + string(rapid.SliceOfN(rapid.Byte(), n, n).Draw(t, "bytes")) + value[at+n:]
}

// damage damages the value of a key, or replaces it by something else.
func damage(t *rapid.T, client *redis.Client, key string) {
	ctx := context.Background()
	kind := client.Type(ctx, key).Val()
	other := rapid.IntRange(0, 9).Draw(t, "another type") == 0
	switch {
	case kind == "zset" && !other:
		for range rapid.IntRange(1, 3).Draw(t, "members") {
			member := rapid.SampledFrom(append([]string{"", "short", "\x00offset", "\x00newest", "\x00longest", "\x00keep"}, client.ZRange(ctx, key, 0, 8).Val()...)).Draw(t, "member")
			if rapid.IntRange(0, 2).Draw(t, "remove") == 0 {
				client.ZRem(ctx, key, member)
				continue
			}
			score := rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{0, -1, 0.5, 3, epoch, epoch + 1, -epoch, 1 << 40, 1 << 53, 1e300, -1e300})).Draw(t, "score")
			client.ZAdd(ctx, key, redis.Z{Score: score, Member: member})
		}
	case other:
		client.Del(ctx, key)
		switch rapid.IntRange(0, 4).Draw(t, "type") {
		case 0:
			client.RPush(ctx, key, "a", "b")
		case 1:
			client.HSet(ctx, key, "a", "b")
		case 2:
			client.SAdd(ctx, key, "a", "b")
		case 3:
			client.ZAdd(ctx, key, redis.Z{Score: 1, Member: "a"})
		case 4:
			client.Set(ctx, key, rapid.SampledFrom([]string{"-1", "1e300", "nan", "inf", "0x10", "99999999999999999999", "7"}).Draw(t, "text"), 0)
		}
	default:
		client.Set(ctx, key, drawDamage(t, client.Get(ctx, key).Val()), 0)
	}
	client.PExpire(ctx, key, time.Hour)
}

// drawOperation draws an entry for a key.
func drawOperation(t *rapid.T, key string, rule *Rule, capacity, clock int64) Entry {
	e := Entry{Key: key, Rule: rule, Cost: rapid.Int64Range(1, capacity).Draw(t, "cost"), Operation: rapid.IntRange(lua.Take, lua.Extend).Draw(t, "operation")}
	switch e.Operation {
	case lua.Take:
		e.Count = rapid.SampledFrom([]int64{0, 0, 3}).Draw(t, "count")
	case lua.Refund:
		e.Charged, e.Stamp = e.Cost, clock-rapid.Int64Range(0, 10).Draw(t, "age")
	case lua.Charge:
		e = past(key, rule, rapid.Int64Range(1, 9).Draw(t, "sequence"), Charge{e.Cost, 0}, Charge{2, time.Second}, Charge{e.Cost, 10 * time.Second})
	case lua.Lease:
		e.Lease = &Lease{ID: 1, Over: 2, Most: capacity, Life: time.Second}
	case lua.Hold, lua.HoldUpTo, lua.Settle, lua.Extend:
		e.Hold = &Hold{ID: rapid.Uint64Range(0, 6).Draw(t, "hold"), Life: time.Second}
	}
	return e
}

// checkDamaged checks law 7 for one value, whatever it is and however it was damaged.
func checkDamaged(t *rapid.T, client *redis.Client, scripts []*Script) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	script := scripts[rapid.IntRange(0, len(scripts)-1).Draw(t, "script")]
	prefix := redistest.Prefix()
	key := prefix + "damaged"
	var keys []string
	for _, name := range []string{"damaged", "a", "b", "c", "d"} {
		keys = append(keys, prefix+name, prefix+name+":lease", prefix+name+":holds", markerKey(prefix+name, "instance"))
	}
	defer client.Del(ctx, keys...)
	drawLimit := func() limit.Limit {
		l := limit.Per(
			rapid.SampledFrom([]int64{1, 7, 10, 40, 300}).Draw(t, "quota"),
			rapid.SampledFrom([]time.Duration{90*time.Second + 123*time.Microsecond, time.Hour, 7 * 24 * time.Hour}).Draw(t, "window"),
		)
		return l.WithBurst(l.Quota())
	}
	made := drawLimit()
	l, by := made, rapid.SampledFrom(configurations()).Draw(t, "written by")
	a := by
	if rapid.IntRange(0, 2).Draw(t, "changed") == 0 {
		l, a = drawLimit(), rapid.SampledFrom(configurations()).Draw(t, "read by")
	}
	if rapid.IntRange(0, 5).Draw(t, "calendar") == 0 {
		l, a = limit.PerCalendar(20, limit.CalendarMonth, time.UTC), limit.FixedWindow()
	}
	clock := rapid.SampledFrom([]int64{0, epoch}).Draw(t, "clock")
	run := func(at int64, entries ...Entry) []Reply {
		t.Helper()
		replies, err := script.Run(ctx, entries, at)
		if err != nil {
			t.Fatalf("%v on a value of %v: %v", a, by, err)
		}
		return replies
	}

	// The key gets a state, a marker, leases and holds. Then one of them is damaged.
	before := newRule(t, made, by)
	run(clock, Entry{Key: key, Rule: before, Cost: (made.Quota() + 1) / 2})
	if made.Quota() > 3 {
		run(clock, past(key, before, 3, Charge{1, time.Second}),
			Entry{Key: key, Rule: before, Cost: 2, Operation: lua.Lease, Lease: &Lease{ID: 2, Most: 4, Life: time.Second}})
	}
	if rapid.Bool().Draw(t, "gives back") {
		before = before.GivesBack()
	}
	for id := range uint64(rapid.IntRange(0, 5).Draw(t, "holds")) {
		run(clock, Entry{Key: key, Rule: before, Cost: 1, Operation: lua.Hold, Hold: &Hold{ID: id + 1, Life: time.Second}})
	}
	victim := rapid.SampledFrom([]string{key, key, key, key, key + ":lease", key + ":holds", key + ":holds", markerKey(key, "instance")}).Draw(t, "victim")
	damage(t, client, victim)
	value, size := client.Dump(ctx, key).Val(), client.StrLen(ctx, key).Val()

	rule, capacity := newRule(t, l, a), a.Capacity(l)
	if rapid.IntRange(0, 2).Draw(t, "gives back what ended") == 0 {
		rule = rule.GivesBack()
	}
	at := clock
	if at > 0 {
		at += rapid.SampledFrom([]int64{0, 1, 1_000_000, l.Window().Microseconds() / 3, -1_000_000}).Draw(t, "later")
	}
	e := drawOperation(t, key, rule, capacity, max(at, 1<<50))
	healthy := func(names string) (entries []Entry) {
		for _, name := range strings.Split(names, "") {
			entries = append(entries, Entry{Key: prefix + name, Rule: rule, Cost: 1}, Entry{Key: prefix + name, Rule: rule, Cost: capacity})
		}
		return entries
	}
	beside := healthy("ab")
	replies := run(at, slices.Insert(beside, 2, e)...)
	damaged := replies[2]
	others := slices.Delete(slices.Clone(replies), 2, 3)
	if want := run(at, healthy("cd")...); at > 0 && !slices.Equal(others, want) {
		t.Fatalf("beside the damaged value: %+v, without it: %+v", others, want)
	}
	checkRange(t, e, damaged, l, a)
	// Damage to a large ring, or to a sorted set, may not be noticed until units are given back.
	if left := client.Dump(ctx, key).Val(); victim == key && damaged.Status == Unreadable && left != value && size > 0 && size < prefixBytes {
		t.Fatalf("unreadable and overwritten: %q became %q", value, left)
	}
	for range 2 {
		e := drawOperation(t, key, rule, capacity, max(at, 1<<50))
		checkRange(t, e, run(at, e)[0], l, a)
	}
	for _, k := range keys {
		if life := client.PTTL(ctx, k).Val(); life == -1 || life > damageRange+limit.MaxWindow {
			t.Fatalf("%q expires in %v", k, life)
		}
	}
}

// prefixBytes is the number of bytes of a value that the script reads at first. They tell it that a log is cut off
// before it writes to the log.
const prefixBytes = 128

// checkRange checks that the reply to an entry on a damaged value is in range.
func checkRange(t *rapid.T, e Entry, r Reply, l limit.Limit, a limit.Algorithm) {
	t.Helper()
	longest := time.Duration(damageRange)
	if a != limit.GCRA() {
		longest = 2 * max(l.Window(), 31*24*time.Hour)
	}
	fitted := max(1, e.Count)
	if e.Operation == lua.Settle {
		fitted = 2 // the hold had been given back
	}
	within := func(d time.Duration) bool { return d >= 0 && d <= longest }
	if r.Status == Expired || r.Remaining < 0 || r.Remaining > a.Capacity(l) || r.Granted < 0 || r.Fitted < 0 || r.Fitted > fitted ||
		!within(r.RetryAfter) || !within(r.NextAfter) || !within(r.ResetAfter) || r.Life < 0 || r.Life > lua.LongestHold*time.Microsecond || r.Stamp < 0 || r.Stamp > 1<<53 {
		t.Fatalf("%v, %v, %+v: %+v", l, a, e, r)
	}
}

func damageScripts(t testing.TB) (*redis.Client, []*Script) {
	client := redistest.Shared(t).Client(t)
	plain := NewScript(client)
	plain.WithoutLibrary()
	return client, []*Script{NewScript(client), plain}
}

func TestLaw7DamagedValues(t *testing.T) {
	client, scripts := damageScripts(t)
	rapid.Check(t, func(t *rapid.T) { checkDamaged(t, client, scripts) })
}

func FuzzDamagedValues(f *testing.F) {
	client, scripts := damageScripts(f)
	for seed := range uint64(16) { // each is long enough for all draws
		random, text := rand.NewChaCha8([32]byte{byte(seed)}), make([]byte, 64<<10)
		_, _ = random.Read(text)
		f.Add(text)
	}
	f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) { checkDamaged(t, client, scripts) }))
}

// Law 7: the next heartbeat rewrites a key of the fleet that is damaged or has another type; otherwise there would
// be an outage for as long as the key exists. All reported numbers are in range, and every key expires.
func TestLaw7DamagedKeysOfTheFleet(t *testing.T) {
	client, ctx := redistest.Start(t).Client(t), context.Background()
	batcher, _ := newBatcher(t, client)
	rapid.Check(t, func(t *rapid.T) {
		client.FlushAll(ctx)
		f := NewFleet(batcher, newKeyspace(t, "tl"), "a", time.Minute, 1)
		heartbeat := func() Heard {
			t.Helper()
			var lost []Loss
			if rapid.Bool().Draw(t, "lost") {
				lost = []Loss{{"rule", time.Hour}}
			}
			heard, err := f.Heartbeat(ctx, rapid.Bool().Draw(t, "unsettled"), lost...)
			if err != nil {
				t.Fatal(err)
			}
			return heard
		}
		heartbeat()
		var keys []string
		for _, key := range f.place.Load().keys {
			keys = append(keys, key.(string))
		}
		for range rapid.IntRange(1, 3).Draw(t, "damages") {
			damage(t, client, rapid.SampledFrom(keys).Draw(t, "key"))
		}
		heartbeat()
		heard := heartbeat() // the first may have found a number that was too large
		if heard.Size < 1 || heard.Size > 9 || heard.Unsettled < 0 || heard.Unsettled > 9 || heard.Generation == "" || len(heard.Generation) > 64 {
			t.Fatalf("%+v", heard)
		}
		if client.ZScore(ctx, keys[0], "a").Val() < float64(heard.Clock) {
			t.Fatalf("the instance does not count: %+v", client.ZRangeWithScores(ctx, keys[0], 0, -1).Val())
		}
		for _, key := range keys {
			if life := client.PTTL(ctx, key).Val(); life == -1 || life > limit.MaxWindow {
				t.Fatalf("%q expires in %v", key, life)
			}
		}
	})
}

// Law 7: records of losses that end in the far future do not keep their key for longer than the longest window.
func TestLaw7LossesOfTheFarFuture(t *testing.T) {
	client, ctx := redistest.Start(t).Client(t), t.Context()
	f := newFleet(t, client, "a", time.Minute)
	mustHeartbeat(t, f, false)
	key := f.place.Load().keys[4].(string)
	client.Set(ctx, key, "rule 4503599627370496000\n", time.Hour)
	mustHeartbeat(t, f, false)
	if life := client.PTTL(ctx, key).Val(); life <= 0 || life > limit.MaxWindow {
		t.Errorf("%q expires in %v", client.Get(ctx, key).Val(), life)
	}
}

// Law 7: a settlement that is sent alone leaves a GCRA state alone that is damaged.
func TestLaw7ALoneSettlementOfADamagedKey(t *testing.T) {
	client, ctx := redistest.Shared(t).Client(t), t.Context()
	script, key, rule := NewScript(client), redistest.Prefix()+"damaged", newRule(t, limit.PerHour(10), limit.GCRA())
	runAll(t, script, []Entry{holdEntry(key, rule, lua.Hold, 1, 4)})
	raw := []byte(client.Get(ctx, key).Val())
	copy(raw[15:], appendInt(nil, 1<<55, 7)) // the theoretical arrival time
	client.Set(ctx, key, raw, time.Hour)
	if r := runAll(t, script, []Entry{holdEntry(key, rule, lua.Settle, 1, 1)})[0]; r.Status != Unreadable {
		t.Errorf("%+v", r)
	}
	if got := client.Get(ctx, key).Val(); got != string(raw) {
		t.Errorf("%q became %q", raw, got)
	}
}

// Law 7: a settlement that is sent alone leaves a log alone that is cut off, or that has another encoding's tag.
func TestLaw7ALoneSettlementOfADamagedLog(t *testing.T) {
	client, ctx := redistest.Shared(t).Client(t), t.Context()
	script, rule := NewScript(client), newRule(t, limit.PerHour(100), limit.SlidingLog())
	const slots = lua.HeaderBytes + 23
	damages := map[string]func(string) string{
		"cut off":        func(raw string) string { return raw[:len(raw)-1] },
		"no slots":       func(raw string) string { return raw[:slots] },
		"a longer state": func(raw string) string { return raw + "x" },
	}
	for tag, width := range map[byte]int{0: 4, lua.TagCounter: 7} { // with slots of the width that the tag stands for
		damages[fmt.Sprint("tag ", tag)] = func(raw string) string {
			capacity := (len(raw) - slots) / 5
			return string(tag) + raw[1:slots] + strings.Repeat(raw[8-width:8], capacity)
		}
	}
	for name, damage := range damages {
		for _, units := range []int64{4, 60} { // a short and a long ring
			key := redistest.Prefix() + "damaged"
			runAll(t, script, []Entry{holdEntry(key, rule, lua.Hold, 1, units)})
			raw := damage(client.Get(ctx, key).Val())
			client.Set(ctx, key, raw, time.Hour)
			if r := runAll(t, script, []Entry{holdEntry(key, rule, lua.Settle, 1, 1)})[0]; r.Status != Unreadable {
				t.Errorf("%s, %d units: %+v", name, units, r)
			}
			if got := client.Get(ctx, key).Val(); got != raw {
				t.Errorf("%s, %d units: %q became %q", name, units, raw, got)
			}
		}
	}
}

// Law 7: a damaged key to which no unit can be granted is not taken for one whose limit is used up.
func TestLaw7ADenialByADamagedKey(t *testing.T) {
	client, ctx := redistest.Shared(t).Client(t), t.Context()
	script := NewScript(client)
	overwrite := func(at int, n int64, bytes int) func(string) string {
		return func(raw string) string { return raw[:at] + string(appendInt(nil, n, bytes)) + raw[at+bytes:] }
	}
	for name, c := range map[string]struct {
		algorithm limit.Algorithm
		damage    func(raw string) string
	}{
		"a theoretical arrival time in the far future": {limit.GCRA(), overwrite(15, 1<<55, 7)},
		"parts of a µs that are more than a µs":        {limit.GCRA(), func(raw string) string { return raw + string(appendInt(nil, 1<<47, 6)) }},
		"a total that is too large":                    {limit.SlidingCounter(1, limit.Strict), overwrite(24, 1<<47, 6)},
		"a count that is too large":                    {limit.FixedWindow(), overwrite(22, 1<<47, 6)},
		"a ring that is cut off":                       {limit.SlidingLog(), func(raw string) string { return raw[:len(raw)-1] }},
	} {
		t.Run(name, func(t *testing.T) {
			rule := newRule(t, limit.PerHour(310).WithBurst(310), c.algorithm)
			full := Entry{Key: redistest.Prefix() + "full", Rule: rule, Cost: 1}
			decide(t, script, full.Key, rule, 0, 309)
			for _, status := range []Status{Allowed, Denied} {
				if r := runAll(t, script, []Entry{full})[0]; r.Status != status {
					t.Fatalf("%+v, want %v", r, status)
				}
			}
			raw := c.damage(client.Get(ctx, full.Key).Val())
			client.Set(ctx, full.Key, raw, time.Hour)
			for n := 1; n <= 2; n++ {
				entries := []Entry{full, {Key: full.Key + "other", Rule: rule, Cost: 1}}[:n]
				if r := runAll(t, script, entries)[0]; r.Status != Unreadable {
					t.Errorf("as one of %d: %+v", n, r)
				}
			}
			if got := client.Get(ctx, full.Key).Val(); got != raw {
				t.Errorf("%q became %q", raw, got)
			}
		})
	}
}

// Law 7: a counter whose total is less than the sum of its counts can be refunded. (The total would become
// negative, which once failed the whole batch.)
func TestLaw7ACounterWithADamagedTotalIsRefunded(t *testing.T) {
	client, ctx := redistest.Shared(t).Client(t), context.Background()
	script, key := NewScript(client), redistest.Prefix()+"damaged"
	rule := newRule(t, limit.PerHour(300), limit.SlidingCounter(4, limit.Estimate))
	charged := runAll(t, script, []Entry{{Key: key, Rule: rule, Cost: 150}})[0]
	const total = 15 + 9 // after the header, k, width and window; 6 bytes
	client.SetRange(ctx, key, total, "\x00\x00\x00\x00\x00\x01")
	replies := runAll(t, script, []Entry{
		{Key: key, Rule: rule, Operation: lua.Refund, Cost: 100, Charged: 150, Stamp: charged.Stamp},
		{Key: key + "healthy", Rule: rule, Cost: 1},
	})
	if replies[0].Granted != 100 || replies[0].Remaining > 300 || replies[1].Status != Allowed {
		t.Errorf("%+v", replies)
	}
}
