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
	charges   []charge // that may be refunded
}

type charge struct{ units, stamp int64 }

func newHistory(t *rapid.T, key string) *history {
	h := &history{key: key}
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
	h.use(t, drawLimit(h.algorithm).Draw(t, "limit"), h.algorithm)
}

// use puts a rule in force.
func (h *history) use(t *rapid.T, l limit.Limit, a limit.Algorithm) {
	h.limit, h.algorithm = l, a
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
	cost := rapid.OneOf(rapid.Int64Range(1, min(3, capacity)), rapid.Int64Range(1, capacity)).Draw(t, "cost")
	operation := lua.Take
	switch rapid.IntRange(0, 19).Draw(t, "operation") {
	case 0, 1, 2:
		operation = lua.TakeUpTo
	case 3, 4:
		operation = lua.Peek
	case 5, 6, 7:
		operation = lua.Refund
	case 8:
		if rapid.IntRange(0, 3).Draw(t, "forget") == 0 {
			operation = lua.Forget
		}
	}
	return h.entry(t, operation, cost)
}

// entry is an entry of the given operation; a take if there is nothing to refund.
func (h *history) entry(t *rapid.T, operation int, cost int64) (e remote.Entry, expect func(now int64) model.Outcome) {
	e = remote.Entry{Key: h.key, Rule: h.rule, Operation: operation, Cost: cost}
	switch operation {
	case lua.TakeUpTo:
		return e, func(now int64) model.Outcome { return h.reference.TakeUpTo(now, e.Cost) }
	case lua.Peek:
		return e, func(now int64) model.Outcome { return h.reference.Peek(now, e.Cost) }
	case lua.Forget:
		return e, func(now int64) model.Outcome { return h.reference.Forget(now) }
	case lua.Refund:
		if len(h.charges) > 0 {
			c := rapid.SampledFrom(h.charges).Draw(t, "charge")
			e.Charged, e.Stamp = c.units, c.stamp
			e.Cost = rapid.Int64Range(1, c.units).Draw(t, "refund")
			return e, func(now int64) model.Outcome { return h.reference.Refund(now, e.Stamp, e.Charged, e.Cost) }
		}
		e.Operation = lua.Take
	}
	return e, func(now int64) model.Outcome { return h.reference.Decide(now, e.Cost) }
}

// remember notes what was charged.
func (h *history) remember(e remote.Entry, r remote.Reply) {
	if r.Status == remote.Allowed && (e.Operation == lua.Take || e.Operation == lua.TakeUpTo) {
		h.charges = append(h.charges, charge{r.Granted, r.Stamp})
	}
}
