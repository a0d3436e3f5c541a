package remote

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/tierlimit/tierlimit/internal/model"
	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// epoch is where virtual time starts in these tests: an odd moment of 2026.
const epoch = 1_790_123_456_789_012

// decide runs one entry at a moment of virtual time.
func decide(t testing.TB, s *Script, key string, rule *Rule, at, cost int64) Reply {
	t.Helper()
	replies, err := s.Run(context.Background(), []Entry{{Key: key, Rule: rule, Cost: cost}}, at)
	if err != nil {
		t.Fatal(err)
	}
	return replies[0]
}

func newRule(t rapid.TB, l limit.Limit, a limit.Algorithm) *Rule {
	t.Helper()
	rule, err := NewRule(l, a)
	if err != nil {
		t.Fatalf("%v under %v: %v", l, a, err)
	}
	return rule
}

// outcome is a reply in the model's terms.
func outcome(r Reply) model.Outcome {
	return model.Outcome{
		Allowed:    r.Status == lua.Allowed,
		Remaining:  r.Remaining,
		Granted:    r.Granted,
		RetryAfter: r.RetryAfter.Microseconds(),
		NextAfter:  r.NextAfter.Microseconds(),
		ResetAfter: r.ResetAfter.Microseconds(),
		Stamp:      r.Stamp,
	}
}

var drawAlgorithm = rapid.Custom(func(t *rapid.T) limit.Algorithm {
	switch rapid.IntRange(0, 4).Draw(t, "kind") {
	case 0:
		return limit.SlidingLog()
	case 1:
		return limit.GCRA()
	case 2:
		return limit.FixedWindow()
	}
	k := rapid.OneOf(rapid.IntRange(1, 4), rapid.IntRange(1, limit.MaxBuckets)).Draw(t, "k")
	return limit.SlidingCounter(k, rapid.SampledFrom([]limit.Rounding{limit.Estimate, limit.Strict}).Draw(t, "rounding"))
})

// drawLimit draws small limits mostly, and odd and huge ones too.
func drawLimit(a limit.Algorithm) *rapid.Generator[limit.Limit] {
	return rapid.Custom(func(t *rapid.T) limit.Limit {
		most := int64(limit.MaxQuota)
		if a.Same(limit.SlidingLog()) {
			most = 3000
		}
		quota := rapid.OneOf(rapid.Int64Range(1, 12), rapid.Int64Range(1, 3000), rapid.Int64Range(1, most)).Draw(t, "quota")
		window := rapid.OneOf(
			rapid.Int64Range(1000, 20_000),
			rapid.SampledFrom([]int64{1_000_000, 60_000_000, 86_400_000_000, limit.MaxWindow.Microseconds()}),
			rapid.Int64Range(1000, limit.MaxWindow.Microseconds()),
		).Draw(t, "window")
		l := limit.Per(quota, time.Duration(window)*time.Microsecond)
		if a.Same(limit.GCRA()) && rapid.Bool().Draw(t, "own burst") {
			withBurst := l.WithBurst(rapid.Int64Range(1, max(1, 2*quota)).Draw(t, "burst"))
			if withBurst.Validate() == nil {
				l = withBurst
			}
		}
		return l
	})
}

// drawGap draws how far time moves between two requests: not at all, a little, to
// about the edges of sub-windows and windows, or past them; and now and then back.
func drawGap(t *rapid.T, window int64) int64 {
	switch rapid.IntRange(0, 9).Draw(t, "gap") {
	case 0, 1:
		return 0
	case 2, 3, 4:
		return rapid.Int64Range(1, max(1, window/10)).Draw(t, "little")
	case 5, 6:
		return rapid.Int64Range(1, window).Draw(t, "within")
	case 7:
		return window + rapid.Int64Range(-2, 2).Draw(t, "edge")
	case 8:
		return rapid.Int64Range(1, 3*window).Draw(t, "past")
	}
	return -rapid.Int64Range(1, 2*window).Draw(t, "back")
}

// Every field of every decision equals the model's, over random histories in
// virtual time: all algorithms, odd and huge limits, costs, idle gaps, clock steps.
func TestScriptEqualsModel(t *testing.T) {
	backends := map[string]redis.UniversalClient{"redis": redistest.Shared(t).Client(t)}
	embedded, _ := redistest.Embedded(t)
	backends["miniredis"] = embedded
	for name, client := range backends {
		t.Run(name, func(t *testing.T) {
			script := NewScript(client)
			rapid.Check(t, func(t *rapid.T) {
				checkHistory(t, script)
			})
		})
	}
}

func checkHistory(t *rapid.T, script *Script) {
	h := newHistory(t, redistest.Prefix()+"history")
	now := epoch + rapid.Int64Range(0, 10*h.window()).Draw(t, "start")
	for range rapid.IntRange(1, 40).Draw(t, "requests") {
		now += drawGap(t, h.window())
		e, expect := h.draw(t)
		before := script.client.Get(context.Background(), h.key).Val()
		replies, err := script.Run(context.Background(), []Entry{e}, now)
		if err != nil {
			t.Fatal(err)
		}
		got, want := outcome(replies[0]), expect(now)
		if got != want {
			t.Fatalf("%v under %v, %+v at %d, state %x:\nscript %+v\nmodel  %+v", h.limit, h.algorithm, e, now, before, got, want)
		}
		h.remember(e, replies[0])
	}
}

// A batch gives the decisions of serving its entries one by one in order, with
// repeated keys and mixed algorithms.
func TestBatchEqualsOneByOne(t *testing.T) {
	script := NewScript(redistest.Shared(t).Client(t))
	rapid.Check(t, func(t *rapid.T) {
		type keyed struct {
			key       string
			rule      *Rule
			reference model.Model
			capacity  int64
			window    int64
		}
		prefix := redistest.Prefix()
		keys := make([]keyed, rapid.IntRange(1, 5).Draw(t, "keys"))
		for i := range keys {
			a := drawAlgorithm.Draw(t, "algorithm")
			l := drawLimit(a).Draw(t, "limit")
			reference, err := model.New(l, a)
			if err != nil {
				t.Fatal(err)
			}
			keys[i] = keyed{fmt.Sprint(prefix, i), newRule(t, l, a), reference, a.Capacity(l), l.Window().Microseconds()}
		}
		now := int64(epoch)
		for range rapid.IntRange(1, 5).Draw(t, "batches") {
			now += drawGap(t, keys[0].window)
			chosen := rapid.SliceOfN(rapid.IntRange(0, len(keys)-1), 1, 20).Draw(t, "entries")
			entries := make([]Entry, len(chosen))
			for i, k := range chosen {
				cost := rapid.Int64Range(1, keys[k].capacity).Draw(t, "cost")
				entries[i] = Entry{Key: keys[k].key, Rule: keys[k].rule, Cost: cost}
			}
			replies, err := script.Run(context.Background(), entries, now)
			if err != nil {
				t.Fatal(err)
			}
			for i, k := range chosen {
				got, want := outcome(replies[i]), keys[k].reference.Decide(now, entries[i].Cost)
				if got != want {
					t.Fatalf("entry %d of %d, key %d:\nscript %+v\nmodel  %+v", i, len(entries), k, got, want)
				}
			}
		}
	})
}
