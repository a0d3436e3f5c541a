package conformance

import (
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/tierlimit/tierlimit/internal/model"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// afterGivingBack returns the expectation for an entry of a rule that first gives back holds that have ended.
func (h *history) afterGivingBack(expect func(now int64) model.Outcome) func(now int64) model.Outcome {
	return func(now int64) model.Outcome {
		h.reference.GiveBack(now)
		return expect(now)
	}
}

// drawID draws the ID of a new hold. Some IDs look like patterns of Lua, or like bytes that are beside another ID in the
// value. Each is used once: which of two holds with one ID a settlement finds depends on the place of their lines.
func (h *history) drawID(t *rapid.T) uint64 {
	odd := rapid.SampledFrom([]uint64{0x2525252525252525, 0x5b5b5b5b5b5b5b5b, 1 << 8, 1 << 16, 1 << 24})
	id := rapid.OneOf(rapid.Uint64Range(1, remote.MaxHoldID), odd).
		Filter(func(id uint64) bool { return !slices.Contains(h.holds, id) }).Draw(t, "hold")
	h.holds = append(h.holds, id)
	return id
}

// drawOpenHolds opens many holds of the key, or none. The value is then so long that single entries write it in place.
func (h *history) drawOpenHolds(t *rapid.T, check func(e remote.Entry, expect func(now int64) model.Outcome)) {
	n := rapid.SampledFrom([]int{0, 0, 19, 30}).Draw(t, "open holds")
	if 2*int64(n) > h.algorithm.Capacity(h.limit) {
		return
	}
	all := h.drawTerms(t)
	for i := range n {
		terms := all
		terms.ID = uint64(1_000_000 + i)
		h.holds = append(h.holds, terms.ID)
		check(remote.Entry{
			Key: h.key, Rule: h.rule, Operation: lua.Hold, Cost: 1,
			Hold: &remote.Hold{ID: terms.ID, Life: time.Duration(terms.Life) * time.Microsecond},
		}, func(now int64) model.Outcome { return h.reference.Hold(now, 1, false, terms) })
	}
}

// drawHold draws an entry that holds units, or that is about a hold, mostly one that was requested before.
func (h *history) drawHold(t *rapid.T, cost int64) (e remote.Entry, expect func(now int64) model.Outcome) {
	e = remote.Entry{Key: h.key, Rule: h.rule, Cost: cost}
	e.Operation = rapid.SampledFrom([]int{lua.Hold, lua.Hold, lua.HoldUpTo, lua.Settle, lua.Settle, lua.Settle, lua.Extend}).Draw(t, "about a hold")
	terms := h.drawTerms(t)
	if e.Operation == lua.Hold || e.Operation == lua.HoldUpTo || len(h.holds) == 0 {
		terms.ID = h.drawID(t)
	} else if rapid.IntRange(0, 19).Draw(t, "none") > 0 {
		terms.ID = rapid.SampledFrom(h.holds).Draw(t, "of")
	}
	e.Hold = &remote.Hold{ID: terms.ID, Life: time.Duration(terms.Life) * time.Microsecond}
	switch e.Operation {
	case lua.Settle:
		capacity := h.algorithm.Capacity(h.limit)
		e.Cost = rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, min(3, capacity)), rapid.Int64Range(0, 2*capacity)).Draw(t, "used")
		return e, func(now int64) model.Outcome { return h.reference.Settle(now, e.Cost, terms.ID) }
	case lua.Extend:
		return e, func(now int64) model.Outcome { return h.reference.Extend(now, terms) }
	}
	return e, func(now int64) model.Outcome {
		return h.reference.Hold(now, e.Cost, e.Operation == lua.HoldUpTo, terms)
	}
}

// drawTerms draws the terms of a hold that has no ID yet.
func (h *history) drawTerms(t *rapid.T) model.HoldTerms {
	life := rapid.OneOf(rapid.Int64Range(1, h.window()), rapid.Int64Range(1, 3*h.window())).Draw(t, "life")
	return model.HoldTerms{Life: min(lua.LongestHold, life), GivesBack: h.givesBack}
}

// holds checks many holds of one key around the moments when they end, with a clock that steps back.
func (s suite) holds(t *rapid.T) {
	h := &history{key: s.newKey(), sequences: make(map[string]int64), givesBack: rapid.Bool().Draw(t, "gives back")}
	a := drawAlgorithm.Draw(t, "algorithm")
	quota := rapid.OneOf(rapid.Int64Range(1, 30), rapid.Int64Range(100, 3000)).Draw(t, "quota")
	window := rapid.SampledFrom([]time.Duration{time.Second, time.Minute, time.Hour}).Draw(t, "window")
	h.use(t, limit.Per(quota, window).WithBurst(quota), a)
	now, ends := int64(epoch), int64(epoch) // ends is the end of the hold requested last
	h.drawOpenHolds(t, func(e remote.Entry, expect func(int64) model.Outcome) { s.check(t, e, now, expect(now)) })
	for range rapid.IntRange(1, 60).Draw(t, "requests") {
		now += rapid.OneOf(
			rapid.Just(int64(0)), rapid.Int64Range(0, h.window()/20), rapid.Int64Range(0, h.window()),
			rapid.SampledFrom([]int64{lua.LateHold - 1, lua.LateHold, -h.window()/3 - 11}),
			rapid.SampledFrom([]int64{max(0, ends-1-now), max(0, ends-now), max(0, ends+lua.LateHold-now)}),
		).Draw(t, "gap")
		var entries []remote.Entry
		var expected []model.Outcome
		for range rapid.SampledFrom([]int{1, 1, 2, 5}).Draw(t, "together") {
			cost := drawUnits(quota).Draw(t, "cost")
			e, expect := h.drawHold(t, cost)
			if rapid.IntRange(0, 4).Draw(t, "something else") == 0 {
				e, expect = h.entry(t, rapid.SampledFrom([]int{lua.Take, lua.Peek, lua.TakeUpTo, lua.Refund, lua.Forget}).Draw(t, "operation"), cost)
			}
			entries, expected = append(entries, e), append(expected, expect(now))
		}
		for i, reply := range s.checkAll(t, entries, now, expected) {
			e := entries[i]
			h.remember(e, reply)
			if e.Hold != nil && e.Operation != lua.Settle {
				ends = now + e.Hold.Life.Microseconds()
			}
		}
	}
}
