package conformance

import (
	"time"

	"pgregory.net/rapid"

	"github.com/tierlimit/tierlimit/internal/model"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// history is the sequence of operations that random tests apply to one key: every operation, under limits and
// algorithms that change.
type history struct {
	key       string
	limit     limit.Limit
	algorithm limit.Algorithm
	rule      *remote.Rule
	reference model.Model
	charges   []charge         // charges that may be refunded
	leases    []uint64         // IDs of the leases requested
	sequences map[string]int64 // of the last Charge of each marker
	holds     []uint64         // IDs of the holds requested
	givesBack bool             // the rule gives back holds that have ended
}

type charge struct{ units, stamp int64 }

func newHistory(t *rapid.T, key string) *history {
	h := &history{key: key, sequences: make(map[string]int64)}
	h.change(t)
	return h
}

func (h *history) window() int64 { return h.limit.Window().Microseconds() }

// change puts another rule in force: another limit, and now and then another algorithm.
func (h *history) change(t *rapid.T) {
	if h.rule == nil || rapid.IntRange(0, 2).Draw(t, "other algorithm") == 0 {
		h.algorithm = drawAlgorithm.Draw(t, "algorithm")
	}
	h.givesBack = rapid.IntRange(0, 3).Draw(t, "gives back") == 0
	h.use(t, drawLimit(h.algorithm).Draw(t, "limit"), h.algorithm)
}

// use puts a rule in force.
func (h *history) use(t *rapid.T, l limit.Limit, a limit.Algorithm) {
	var reference model.Model
	h.limit, h.algorithm = l, a
	h.rule, reference = newPair(t, l, a)
	if h.givesBack {
		h.rule = h.rule.GivesBack()
	}
	if h.reference == nil {
		h.reference = reference
	} else if err := h.reference.Use(l, a); err != nil {
		t.Fatal(err)
	}
}

// draw draws the next entry; expect runs it through the model.
func (h *history) draw(t *rapid.T) (e remote.Entry, expect func(now int64) model.Outcome) {
	if rapid.IntRange(0, 19).Draw(t, "change") == 0 {
		h.change(t)
	}
	capacity := h.algorithm.Capacity(h.limit)
	cost := drawUnits(capacity).Draw(t, "cost")
	operation := lua.Take
	switch rapid.IntRange(0, 24).Draw(t, "operation") {
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
	case 9, 10, 11:
		operation = lua.Lease
	case 12, 13:
		operation = lua.Charge
	case 14, 15:
		return h.counted(t, cost)
	case 20, 21, 22, 23, 24:
		return h.drawHold(t, cost)
	}
	return h.entry(t, operation, cost)
}

// counted returns an entry of several takes of the given cost.
func (h *history) counted(t *rapid.T, cost int64) (e remote.Entry, expect func(now int64) model.Outcome) {
	if h.givesBack {
		defer func() { expect = h.afterGivingBack(expect) }()
	}
	e = remote.Entry{Key: h.key, Rule: h.rule, Operation: lua.Take, Cost: cost}
	e.Count = rapid.OneOf(rapid.Int64Range(1, 12), rapid.Int64Range(1, 300)).Draw(t, "count")
	return e, func(now int64) model.Outcome {
		return several(e.Count, func() model.Outcome { return h.reference.Decide(now, e.Cost) })
	}
}

// entry returns an entry of the given operation, or a take instead of a refund if there is no charge to refund.
func (h *history) entry(t *rapid.T, operation int, cost int64) (e remote.Entry, expect func(now int64) model.Outcome) {
	if h.givesBack {
		defer func() { expect = h.afterGivingBack(expect) }()
	}
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
			if h.algorithm.Same(limit.SlidingLog()) && rapid.Bool().Draw(t, "undo") {
				e.Charged = 0
			}
			return e, func(now int64) model.Outcome { return h.reference.Refund(now, e.Stamp, e.Charged, e.Cost) }
		}
		e.Operation = lua.Take
	case lua.Lease:
		return h.drawLease(t, e)
	case lua.Charge:
		return h.drawPast(t)
	}
	return e, func(now int64) model.Outcome { return h.reference.Decide(now, e.Cost) }
}

// drawLease turns the entry into a request for a lease, which mostly ends an earlier lease.
func (h *history) drawLease(t *rapid.T, e remote.Entry) (remote.Entry, func(now int64) model.Outcome) {
	capacity := h.algorithm.Capacity(h.limit)
	terms := model.Terms{
		ID:      rapid.Uint64Min(1).Draw(t, "lease"),
		Most:    rapid.Int64Range(0, capacity).Draw(t, "most on lease"),
		Reserve: rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, capacity)).Draw(t, "reserve"),
		Life:    min(lua.LongestLease, rapid.Int64Range(1, h.window()).Draw(t, "life")),
	}
	if len(h.leases) > 0 && rapid.IntRange(0, 2).Draw(t, "ends one") > 0 {
		terms.Over = rapid.SampledFrom(h.leases).Draw(t, "over")
	}
	h.leases = append(h.leases, terms.ID)
	e.Operation, e.Cost = lua.Lease, rapid.Int64Range(0, capacity).Draw(t, "wanted")
	e.Lease = &remote.Lease{ID: terms.ID, Over: terms.Over, Most: terms.Most, Reserve: terms.Reserve,
		Life: time.Duration(terms.Life) * time.Microsecond}
	return e, func(now int64) model.Outcome { return h.reference.Lease(now, e.Cost, terms) }
}

// drawPast draws a Charge: mostly a new one, and sometimes a repeat of an earlier one.
func (h *history) drawPast(t *rapid.T) (e remote.Entry, expect func(now int64) model.Outcome) {
	marker := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "marker")
	sequence := max(1, h.sequences[marker]+rapid.SampledFrom([]int64{1, 1, 1, 3, 0, -1}).Draw(t, "sequence"))
	h.sequences[marker] = max(sequence, h.sequences[marker])
	past := drawPast(h.algorithm.Capacity(h.limit), h.window()).Draw(t, "past")
	e = pastEntry(past)
	e.Key, e.Rule, e.Marker, e.Sequence = h.key, h.rule, marker, sequence
	return e, func(now int64) model.Outcome { return h.reference.Charge(now, marker, sequence, past) }
}

// several returns the outcome of count decisions made one after another.
func several(count int64, decide func() model.Outcome) model.Outcome {
	all, granted := true, int64(0)
	var last model.Outcome
	for range count {
		last = decide()
		all = all && last.Allowed
		granted += last.Granted
	}
	last.Allowed, last.Granted = all, granted
	return last
}

// remember records the charge that an entry made.
func (h *history) remember(e remote.Entry, r remote.Reply) {
	switch {
	case r.Granted == 0:
	case e.Operation == lua.Take:
		h.charges = append(h.charges, charge{e.Cost, r.Stamp})
	case e.Operation == lua.TakeUpTo, e.Operation == lua.Lease:
		h.charges = append(h.charges, charge{r.Granted, r.Stamp})
	}
}
