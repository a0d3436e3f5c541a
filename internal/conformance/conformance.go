package conformance

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tierlimit/tierlimit/internal/model"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// Backend decides entries, as [remote.Script] does.
type Backend interface {
	// Run decides all entries, in order, at the given virtual time in microseconds
	// since the Unix epoch, or on the backend's own clock if that is 0, and returns a reply
	// for each.
	Run(ctx context.Context, entries []remote.Entry, clock int64) ([]remote.Reply, error)
}

// epoch is the start of virtual time: an odd moment of 2026.
const epoch = 1_790_123_456_789_012

// Test runs the whole suite against a backend, as subtests of t. It uses keys that no earlier run has used, and
// leaves them behind. rapid chooses the number of random cases: -rapid.checks, or RAPID_CHECKS.
func Test(t *testing.T, backend Backend) {
	s := suite{backend: backend, prefix: "conformance:" + rand.Text()[:8] + ":", keys: new(atomic.Int64)}
	t.Run("one by one", func(t *testing.T) { rapid.Check(t, s.oneByOne) })
	t.Run("on Redis's clock", func(t *testing.T) { rapid.Check(t, s.onRedisClock) })
	t.Run("waits", func(t *testing.T) { rapid.Check(t, s.waits) })
	t.Run("batches", func(t *testing.T) { rapid.Check(t, s.batches) })
	t.Run("huge and odd numbers", s.hugeAndOdd)
	t.Run("huge counts", s.hugeCounts)
	t.Run("huge groups", s.hugeGroups)
	t.Run("refunds to a part of a µs", s.refundsToAPart)
	t.Run("refunded hold", s.refundedHold)
	t.Run("old charge with holds over", s.oldChargeWithHoldsOver)
	t.Run("change from a high rate", s.changeFromHighRate)
	t.Run("leases", func(t *testing.T) { rapid.Check(t, s.leases) })
	t.Run("holds", func(t *testing.T) { rapid.Check(t, s.holds) })
	t.Run("calendar", func(t *testing.T) { rapid.Check(t, s.calendar) })
	t.Run("changes", func(t *testing.T) { rapid.Check(t, s.changes) })
	t.Run("groups", func(t *testing.T) { rapid.Check(t, s.groups) })
	t.Run("stated empty after a step", s.statedEmptyAfterAStep)
	t.Run("slots", func(t *testing.T) { rapid.Check(t, s.slots) })
	t.Run("mixed groups", func(t *testing.T) { rapid.Check(t, s.mixedGroups) })
	t.Run("plain", func(t *testing.T) { rapid.Check(t, s.plain) })
	t.Run("alternating", func(t *testing.T) { rapid.Check(t, s.alternating) })
}

type suite struct {
	backend Backend
	prefix  string
	keys    *atomic.Int64
}

// newKey returns a key that has not been used. All keys share a Cluster slot.
func (s suite) newKey() string { return fmt.Sprintf("{%s}%d", s.prefix, s.keys.Add(1)) }

func (s suite) run(t rapid.TB, entries []remote.Entry, now int64) []remote.Reply {
	t.Helper()
	replies, err := s.backend.Run(context.Background(), entries, now)
	if err != nil {
		t.Fatal(err)
	}
	if len(replies) != len(entries) {
		t.Fatalf("%d replies to %d entries", len(replies), len(entries))
	}
	return replies
}

// check runs an entry, and checks that every field of its outcome is as expected.
func (s suite) check(t rapid.TB, e remote.Entry, now int64, want model.Outcome) remote.Reply {
	t.Helper()
	return s.checkAll(t, []remote.Entry{e}, now, []model.Outcome{want})[0]
}

func (s suite) checkAll(t rapid.TB, entries []remote.Entry, now int64, want []model.Outcome) []remote.Reply {
	t.Helper()
	replies := s.run(t, entries, now)
	for i, e := range entries {
		if got := outcome(replies[i]); got != want[i] {
			t.Fatalf("entry %d of %d, %+v of hold %+v at %d:\ngot   %+v\nmodel %+v", i+1, len(entries), e, e.Hold, now, got, want[i])
		}
	}
	return replies
}

// newPair returns a rule and its model. A failed test shows the limit and the algorithm.
func newPair(t rapid.TB, l limit.Limit, a limit.Algorithm) (*remote.Rule, model.Model) {
	t.Helper()
	t.Logf("%v under %v", l, a)
	rule, err := remote.NewRule(l, a)
	if err != nil {
		t.Fatal(err)
	}
	reference, err := model.New(l, a)
	if err != nil {
		t.Fatal(err)
	}
	return rule, reference
}

// oneByOne checks that every field of every decision about a key equals the model's.
func (s suite) oneByOne(t *rapid.T) {
	h := newHistory(t, s.newKey())
	now := epoch + rapid.Int64Range(0, 10*h.window()).Draw(t, "start")
	for range rapid.IntRange(1, 40).Draw(t, "requests") {
		now += drawGap(t, h.window())
		e, expect := h.draw(t)
		h.remember(e, s.check(t, e, now, expect(now)))
	}
}

// onRedisClock checks the same on the server's own clock, where a single entry takes a short path of its own. The
// limit does not change meanwhile: keys expire when they no longer matter to the limits they were used under,
// whereas models do not.
func (s suite) onRedisClock(t *rapid.T) {
	h := newHistory(t, s.newKey())
	if rapid.Bool().Draw(t, "small") { // settlements of small limits are decided straight through, too
		h = &history{key: h.key, givesBack: h.givesBack}
		a, quota := drawPlainAlgorithm.Draw(t, "small algorithm"), rapid.Int64Range(1, 90).Draw(t, "small quota")
		// A unit of GCRA takes a whole number of µs; or only several units do: many of them, or only two.
		odd := rapid.SampledFrom([]int64{0, 7, quota / 2}).Draw(t, "odd")
		h.use(t, limit.Per(quota, time.Duration(quota*1_000_000+odd)*time.Microsecond).WithBurst(quota), a)
	}
	capacity := h.algorithm.Capacity(h.limit)
	check := func(e remote.Entry, expect func(now int64) model.Outcome) {
		reply := s.run(t, []remote.Entry{e}, 0)[0]
		if got, want := outcome(reply), expect(reply.Clock); got != want {
			t.Fatalf("%+v of hold %+v at %d:\ngot   %+v\nmodel %+v", e, e.Hold, reply.Clock, got, want)
		}
		h.remember(e, reply)
	}
	if h.window() >= 1_000_000 {
		h.drawOpenHolds(t, check)
	}
	for range rapid.IntRange(1, 40).Draw(t, "requests") {
		cost := drawUnits(capacity).Draw(t, "cost")
		var e remote.Entry
		var expect func(int64) model.Outcome
		what := rapid.IntRange(0, 3).Draw(t, "what")
		switch {
		case what == 0:
			e, expect = h.entry(t, lua.Take, cost)
		case what == 1 || h.window() < 1_000_000: // so short that a key may expire while a slow script runs
			e, expect = h.counted(t, cost)
		default:
			e, expect = h.drawHold(t, cost)
		}
		check(e, expect)
	}
}

// batches checks that a batch leads to the same decisions as its entries one by one, in order, with repeated keys
// and mixed algorithms.
func (s suite) batches(t *rapid.T) {
	histories := make([]*history, rapid.IntRange(1, 5).Draw(t, "keys"))
	for i := range histories {
		histories[i] = newHistory(t, s.newKey())
	}
	now := int64(epoch)
	for range rapid.IntRange(1, 5).Draw(t, "batches") {
		now += drawGap(t, histories[0].window())
		chosen := rapid.SliceOfN(rapid.SampledFrom(histories), 1, 20).Draw(t, "entries")
		entries := make([]remote.Entry, len(chosen))
		expected := make([]model.Outcome, len(chosen))
		for i, h := range chosen {
			var expect func(int64) model.Outcome
			entries[i], expect = h.draw(t)
			expected[i] = expect(now)
		}
		for i, reply := range s.checkAll(t, entries, now, expected) {
			chosen[i].remember(entries[i], reply)
		}
	}
}

// groups checks that the entries of a group are charged all or none (law 9), and that neighboring entries are
// decided as if each had come alone.
func (s suite) groups(t *rapid.T) {
	histories := make([]*history, 4)
	for i := range histories {
		histories[i] = newHistory(t, s.newKey())
	}
	now := int64(epoch)
	for range rapid.IntRange(1, 6).Draw(t, "batches") {
		now += rapid.Int64Range(0, 100_000).Draw(t, "gap")
		var entries []remote.Entry
		var of []*history
		for group := 1; group <= 3; group++ {
			for _, i := range rapid.SliceOfNDistinct(rapid.IntRange(0, len(histories)-1), 1, -1, rapid.ID).Draw(t, "members") {
				h := histories[i]
				capacity := h.algorithm.Capacity(h.limit)
				of = append(of, h)
				entries = append(entries, remote.Entry{
					Key:   h.key,
					Rule:  h.rule,
					Cost:  drawUnits(capacity).Draw(t, "cost"),
					Group: group % 3, // the last "group" is 0: independent entries
				})
			}
		}
		replies := s.run(t, entries, now)
		for from := 0; from < len(entries); {
			to := from + 1
			for entries[from].Group != 0 && to < len(entries) && entries[to].Group == entries[from].Group {
				to++
			}
			checkGroup(t, now, entries[from:to], of[from:to], replies[from:to])
			from = to
		}
	}
}

func checkGroup(t *rapid.T, now int64, entries []remote.Entry, of []*history, replies []remote.Reply) {
	fit := true
	for i, e := range entries {
		fit = fit && of[i].reference.Clone().Decide(now, e.Cost).Allowed
	}
	for i, e := range entries {
		reference := of[i].reference
		if !fit {
			reference = reference.Clone() // nothing is charged
		}
		want, got := reference.Decide(now, e.Cost), replies[i]
		switch {
		case fit && got.Status != remote.Allowed,
			!fit && want.Allowed && got.Status != remote.HeldBack,
			!want.Allowed && got.Status != remote.Denied:
			t.Fatalf("entry %d of group %d (it fits: %v): status %d, model %+v", i, e.Group, fit, got.Status, want)
		case got.Status != remote.HeldBack && outcome(got) != want:
			t.Fatalf("entry %d of group %d:\ngot   %+v\nmodel %+v", i, e.Group, outcome(got), want)
		}
	}
}

// outcome converts a reply to the model's terms.
func outcome(r remote.Reply) model.Outcome {
	return model.Outcome{
		Allowed:    r.Status == remote.Allowed,
		Granted:    r.Granted,
		Remaining:  r.Remaining,
		RetryAfter: r.RetryAfter.Microseconds(),
		NextAfter:  r.NextAfter.Microseconds(),
		ResetAfter: r.ResetAfter.Microseconds(),
		Stamp:      r.Stamp,
		Life:       r.Life.Microseconds(),
	}
}
