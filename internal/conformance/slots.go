package conformance

import (
	"time"

	"pgregory.net/rapid"

	"github.com/tierlimit/tierlimit/internal/model"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// slotsHistory is the sequence of operations that random tests apply to one key of a concurrency limit.
type slotsHistory struct {
	key       string
	reference model.Slots
}

// crowd is the largest number of processes that hold units of a key from the start: more than the script reads at first.
const crowd = 12

// drawHolder draws the process that asks: one of a few processes, under limits and TTLs that change.
func drawHolder(t *rapid.T) (model.Holder, *remote.Rule) {
	return holder(t, model.Holder{
		Name: rapid.OneOf(
			rapid.StringOfN(rapid.SampledFrom([]rune("ab")), 3, 3, -1), rapid.Map(rapid.IntRange(0, crowd-1), inCrowd),
		).Draw(t, "holder"),
		Quota: rapid.OneOf(rapid.Int64Range(1, 9), rapid.Just(int64(limit.MaxQuota))).Draw(t, "quota"),
		TTL:   drawTTL(t),
	})
}

func inCrowd(i int) string { return string(rune('A' + i)) }

func drawTTL(t *rapid.T) int64 {
	return rapid.SampledFrom([]int64{1000, 300_000, 10_000_000, lua.LongestSlot}).Draw(t, "ttl")
}

func holder(t *rapid.T, h model.Holder) (model.Holder, *remote.Rule) {
	var id remote.Holder
	copy(id[:], h.Name)
	rule, err := remote.NewSlotsRule(limit.Concurrent(h.Quota), time.Duration(h.TTL)*time.Microsecond, id)
	if err != nil {
		t.Fatal(err)
	}
	return h, rule
}

// draw draws the next entry; expect runs it through the model.
func (s *slotsHistory) draw(t *rapid.T) (e remote.Entry, expect func(now int64) model.Outcome) {
	h, rule := drawHolder(t)
	units := drawUnits(h.Quota).Draw(t, "units")
	e = remote.Entry{Key: s.key, Rule: rule, Cost: units}
	switch rapid.IntRange(0, 15).Draw(t, "operation") {
	case 0, 1, 2, 3:
		e.Operation = lua.Refund
		return e, func(now int64) model.Outcome { return s.reference.Release(now, h, units) }
	case 4:
		e.Operation = lua.TakeUpTo
		return e, func(now int64) model.Outcome { return s.reference.AcquireUpTo(now, h, units) }
	case 5:
		e.Operation = lua.Peek
		return e, func(now int64) model.Outcome { return s.reference.Peek(now, h, units) }
	case 6, 7, 8:
		e.Operation, e.Cost = lua.Slots, lua.SlotsAsKnown
		return e, func(now int64) model.Outcome { return s.reference.Renew(now, h) }
	case 9, 10:
		e.Operation, e.Cost = lua.Slots, rapid.Int64Range(0, units+1).Draw(t, "held")
		return e, func(now int64) model.Outcome { return s.reference.State(now, h, e.Cost) }
	case 11:
		if rapid.IntRange(0, 3).Draw(t, "forget") == 0 {
			e.Operation = lua.Forget
			return e, func(now int64) model.Outcome { return s.reference.Forget(now, h) }
		}
	case 12, 13:
		e.Count = rapid.Int64Range(1, 12).Draw(t, "count")
		return e, func(now int64) model.Outcome {
			return several(e.Count, func() model.Outcome { return s.reference.Acquire(now, h, units) })
		}
	}
	return e, func(now int64) model.Outcome { return s.reference.Acquire(now, h, units) }
}

// slots checks that every field of every answer about held units equals the model's: in batches with several keys,
// with a clock that steps back, and around the moments at which processes count as dead.
func (s suite) slots(t *rapid.T) {
	histories := make([]*slotsHistory, rapid.IntRange(1, 3).Draw(t, "keys"))
	for i := range histories {
		histories[i] = &slotsHistory{key: s.newKey()}
	}
	now, ends := int64(epoch), int64(0)
	for _, h := range histories {
		for i := range rapid.SampledFrom([]int{0, crowd / 2, crowd}).Draw(t, "crowd") {
			holder, rule := holder(t, model.Holder{Name: inCrowd(i), Quota: limit.MaxQuota, TTL: drawTTL(t)})
			s.checkAll(t, []remote.Entry{{Key: h.key, Rule: rule, Cost: 1}}, now, []model.Outcome{h.reference.Acquire(now, holder, 1)})
		}
	}
	for range rapid.IntRange(1, 20).Draw(t, "batches") {
		now += rapid.OneOf(
			rapid.Just(int64(0)), rapid.Int64Range(0, 400_000), rapid.Int64Range(0, 20_000_000),
			rapid.Map(rapid.Int64Range(-1, 1), func(edge int64) int64 { return ends + edge }), rapid.Int64Range(-11_000_000, 0),
		).Draw(t, "gap")
		chosen := rapid.SliceOfN(rapid.SampledFrom(histories), 1, 6).Draw(t, "entries")
		entries := make([]remote.Entry, len(chosen))
		expected := make([]model.Outcome, len(chosen))
		for i, h := range chosen {
			var expect func(int64) model.Outcome
			entries[i], expect = h.draw(t)
			expected[i] = expect(now)
		}
		s.checkAll(t, entries, now, expected)
		ends = expected[len(expected)-1].ResetAfter
	}
}
