package remote

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
)

// Law 1: entries that the packed argument combines in a Takes are decided, and leave in Redis, what they would alone:
// whatever states their keys are in, whichever of them are late, and whatever stands between them.
func TestLaw1TakesAreDecidedAsIfAlone(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	script := NewScript(client)
	const window, seeds = int64(60_000_000), 12
	for number, a := range configurations() {
		t.Run(a.String(), func(t *testing.T) {
			for seed := range uint64(seeds) {
				random := rand.New(rand.NewPCG(seed, uint64(number)))
				rules := takesRules(t, a)
				start := int64(epoch) + random.Int64N(window)
				together, alone := redistest.Prefix(), redistest.Prefix()
				var names []string
				for i := range 12 {
					name := fmt.Sprintf("k%d", i)
					names = append(names, name)
					kind := random.IntN(9)
					age := []int64{0, 1, window / 3, window - 1, window, 3 * window}[random.IntN(6)]
					for _, prefix := range []string{together, alone} {
						prepare(t, client, script, prefix+name, kind, start-age, rules)
					}
				}
				var entries []Entry
				for range 30 {
					e := Entry{Key: names[random.IntN(len(names))], Rule: rules[random.IntN(8)/6], Cost: []int64{1, 1, 1, 1, 2, 300}[random.IntN(6)]}
					e.NotAfter = []int64{0, start - lua.NotAfterStep, start, start + 1_000, start + 10_000_000}[min(4, random.IntN(12))]
					switch random.IntN(24) {
					case 0:
						e.Count = 3
					case 1, 2, 3:
						e.Operation = lua.Peek
					case 4:
						e.Rule = rules[3] // gives holds back
					}
					entries = append(entries, e)
				}
				for i, name := range []string{"seen", "other", "seen", "third", "seen"} { // the last must find the middle one's charge
					entries = append(entries, Entry{Key: name, Rule: rules[0], Operation: []int{lua.Peek, lua.Take, lua.Take, lua.Take, lua.Peek}[i], Cost: 1})
				}
				combined := slices.Clone(entries)
				for i := range combined {
					combined[i].Key = together + combined[i].Key
				}
				got, err := script.Run(t.Context(), combined, start)
				if err != nil {
					t.Fatal(err)
				}
				for i, e := range entries {
					e.Key = alone + e.Key
					want, err := script.Run(t.Context(), []Entry{e}, start)
					if err != nil {
						t.Fatal(err)
					}
					if got, want := fmt.Sprintf("%+v", got[i]), fmt.Sprintf("%+v", want[0]); got != want {
						t.Fatalf("seed %d, entry %d (%s, cost %d): %s; alone: %s", seed, i, e.Key, e.Cost, got, want)
					}
				}
				for _, name := range names {
					for _, later := range []int64{0, window / 3, window - 1} {
						if got, want := seenLater(t, script, together+name, rules, start+later), seenLater(t, script, alone+name, rules, start+later); got != want {
							t.Errorf("seed %d, %s, %d µs later: %s; alone: %s", seed, name, later, got, want)
						}
					}
				}
			}
		})
	}
}

// takesRules returns two rules of an algorithm, a rule of another algorithm, and the first rule as one that gives holds
// back.
func takesRules(t *testing.T, a limit.Algorithm) []*Rule {
	l, other := limit.Per(7, time.Minute), limit.SlidingCounter(2, limit.Strict)
	if a.Same(limit.GCRA()) {
		l = l.WithBurst(7)
	}
	first := newRule(t, l, a)
	return []*Rule{first, newRule(t, limit.Per(20, 30*time.Second), a), newRule(t, limit.Per(9, time.Minute), other), first.GivesBack()}
}

// prepare makes the state of a key before the entries, most of it at a time in the past: new, used, full, used under
// another rule, ahead of the clock, with an offset, damaged, or of another type.
func prepare(t *testing.T, client *redis.Client, script *Script, key string, kind int, past int64, rules []*Rule) {
	t.Helper()
	take := func(rule *Rule, n int, at int64) {
		for range n {
			if _, err := script.Run(t.Context(), []Entry{{Key: key, Rule: rule, Cost: 1}}, at); err != nil {
				t.Fatal(err)
			}
		}
	}
	var err error
	switch kind {
	case 1, 2:
		take(rules[0], kind, past)
	case 3:
		take(rules[0], 7, past)
	case 4:
		take(rules[2], 2, past)
	case 5:
		take(rules[0], 2, past+600_000_000) // the clock will have stepped back
	case 6: // it has stepped back before
		take(rules[0], 1, past+10_000_000)
		take(rules[0], 1, past)
	case 7:
		take(rules[0], 1, past)
		if client.Type(t.Context(), key).Val() == "string" {
			err = client.SetRange(t.Context(), key, lua.HeaderBytes, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff").Err()
		}
	case 8:
		err = client.RPush(t.Context(), key, "not ours").Err()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// seenLater returns what peeks under two rules find of a key.
func seenLater(t *testing.T, script *Script, key string, rules []*Rule, at int64) (seen string) {
	t.Helper()
	for _, rule := range rules[:2] {
		replies, err := script.Run(t.Context(), []Entry{{Key: key, Rule: rule, Operation: lua.Peek, Cost: 1}}, at)
		if err != nil {
			t.Fatal(err)
		}
		seen += fmt.Sprintf("%+v ", replies[0])
	}
	return seen
}

// A Takes has neighboring entries of one rule and cost, each of its own key. Entries that need more than that are not part
// of it: a neighbor of the same key, a count, a group, a long cost, or a key of holds.
func TestWhichEntriesATakesStandsFor(t *testing.T) {
	rule, other := newRule(t, limit.PerMinute(10), limit.SlidingLog()), newRule(t, limit.PerMinute(20), limit.SlidingLog())
	take := func(key string) Entry { return Entry{Key: key, Rule: rule, Cost: 1} }
	three := []Entry{take("a"), take("b"), take("c")}
	with := func(change func(*Entry)) []Entry {
		entries := append(slices.Clone(three), take("d"))
		change(&entries[3])
		return entries
	}
	many := make([]Entry, 300)
	for i := range many {
		many[i] = take(fmt.Sprint(i))
	}
	for name, test := range map[string]struct {
		entries []Entry
		want    int
	}{
		"all":             {three, 3},
		"a single one":    {three[:1], 1},
		"as many as may":  {many, maxTakes},
		"another rule":    {with(func(e *Entry) { e.Rule = other }), 3},
		"another cost":    {with(func(e *Entry) { e.Cost = 2 }), 3},
		"a long cost":     {[]Entry{{Key: "a", Rule: rule, Cost: 256}, {Key: "b", Rule: rule, Cost: 256}}, 0},
		"a count":         {with(func(e *Entry) { e.Count = 2 }), 3},
		"a group":         {with(func(e *Entry) { e.Group = 1 }), 3},
		"an operation":    {with(func(e *Entry) { e.Operation = lua.TakeUpTo }), 3},
		"a key of holds":  {[]Entry{{Key: "a", Rule: rule.GivesBack(), Cost: 1}}, 0},
		"the key again":   {with(func(e *Entry) { e.Key = "c" }), 2},
		"and differently": {with(func(e *Entry) { e.Key, e.Rule = "c", other }), 2},
	} {
		if got := takes(test.entries); got != test.want {
			t.Errorf("%s: %d entries, want %d", name, got, test.want)
		}
	}
}
