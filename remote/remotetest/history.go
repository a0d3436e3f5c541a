package remotetest

import (
	"pgregory.net/rapid"

	"github.com/tierlimit/tierlimit/internal/model"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// history is what random tests do to one key: every operation, under limits and
// algorithms that change.
type history struct {
	key       string
	limit     limit.Limit
	algorithm limit.Algorithm
	rule      *remote.Rule
	reference model.Model
	charges   []charge         // that may be refunded
	sequences map[string]int64 // of the last Charge, by marker
}

type charge struct{ units, stamp int64 }

func newHistory(t *rapid.T, key string) *history {
	h := &history{key: key, sequences: make(map[string]int64)}
	h.change(t)
	return h
}

func (h *history) window() int64 { return h.limit.Window().Microseconds() }

// change puts another rule in force: another limit, and now and then another
// algorithm.
func (h *history) change(t *rapid.T) {
	if h.rule == nil || rapid.IntRange(0, 2).Draw(t, "other algorithm") == 0 {
		h.algorithm = drawAlgorithm.Draw(t, "algorithm")
	}
	h.limit = drawLimit(h.algorithm).Draw(t, "limit")
	var err error
	if h.rule, err = remote.NewRule(h.limit, h.algorithm); err != nil {
		t.Fatalf("%v under %v: %v", h.limit, h.algorithm, err)
	}
	if h.reference == nil {
		h.reference, err = model.New(h.limit, h.algorithm)
	} else {
		err = h.reference.Use(h.limit, h.algorithm)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// draw draws the next entry; expect is what the model makes of it.
func (h *history) draw(t *rapid.T) (e remote.Entry, expect func(now int64) model.Outcome) {
	if rapid.IntRange(0, 19).Draw(t, "change") == 0 {
		h.change(t)
	}
	capacity := h.algorithm.Capacity(h.limit)
	e = remote.Entry{Key: h.key, Rule: h.rule, Operation: lua.Take}
	e.Cost = rapid.OneOf(rapid.Int64Range(1, min(3, capacity)), rapid.Int64Range(1, capacity)).Draw(t, "cost")
	switch rapid.IntRange(0, 19).Draw(t, "operation") {
	case 0, 1, 2:
		e.Operation = lua.TakeUpTo
		return e, func(now int64) model.Outcome { return h.reference.TakeUpTo(now, e.Cost) }
	case 3, 4:
		e.Operation = lua.Peek
		return e, func(now int64) model.Outcome { return h.reference.Peek(now, e.Cost) }
	case 5, 6, 7:
		if len(h.charges) > 0 {
			c := rapid.SampledFrom(h.charges).Draw(t, "charge")
			e.Operation, e.Charged, e.Stamp = lua.Refund, c.units, c.stamp
			e.Cost = rapid.Int64Range(1, c.units).Draw(t, "refund")
			return e, func(now int64) model.Outcome { return h.reference.Refund(now, e.Stamp, e.Charged, e.Cost) }
		}
	case 8:
		if rapid.IntRange(0, 3).Draw(t, "forget") == 0 {
			e.Operation = lua.Forget
			return e, func(now int64) model.Outcome { return h.reference.Forget(now) }
		}
	case 9, 10:
		return h.drawPast(t)
	case 11, 12:
		e.Count = rapid.Int64Range(1, 12).Draw(t, "count")
		return e, func(now int64) model.Outcome { return h.several(now, e.Cost, e.Count) }
	}
	return e, func(now int64) model.Outcome { return h.reference.Decide(now, e.Cost) }
}

// drawPast draws a Charge: a new one mostly, and repeats of those before.
func (h *history) drawPast(t *rapid.T) (e remote.Entry, expect func(now int64) model.Outcome) {
	marker := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "marker")
	sequence := max(1, h.sequences[marker]+rapid.SampledFrom([]int64{1, 1, 1, 3, 0, -1}).Draw(t, "sequence"))
	h.sequences[marker] = max(sequence, h.sequences[marker])
	past := drawPast(h.algorithm.Capacity(h.limit), h.window()).Draw(t, "past")
	e = pastEntry(past)
	e.Key, e.Rule, e.Marker, e.Sequence = h.key, h.rule, marker, sequence
	return e, func(now int64) model.Outcome { return h.reference.Charge(now, marker, sequence, past) }
}

// several is count decisions one after another, as one outcome.
func (h *history) several(now, cost, count int64) model.Outcome {
	all, granted := true, int64(0)
	var last model.Outcome
	for range count {
		last = h.reference.Decide(now, cost)
		all = all && last.Allowed
		granted += last.Granted
	}
	last.Allowed, last.Granted = all, granted
	return last
}

// remember notes what was charged.
func (h *history) remember(e remote.Entry, r remote.Reply) {
	switch {
	case r.Granted == 0:
	case e.Operation == lua.Take:
		h.charges = append(h.charges, charge{e.Cost, r.Stamp})
	case e.Operation == lua.TakeUpTo:
		h.charges = append(h.charges, charge{r.Granted, r.Stamp})
	}
}
