package conformance

import (
	"time"

	"pgregory.net/rapid"

	"github.com/tierlimit/tierlimit/internal/model"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// member is a key that appears in groups of all kinds of entries.
type member interface {
	// alone draws an independent entry. grouped draws an entry of a group, which charges, holds or acquires units.
	// expect runs the entry through the model.
	alone(t *rapid.T) (e remote.Entry, expect func(now int64) model.Outcome)
	grouped(t *rapid.T) (e remote.Entry, expect func(now int64) model.Outcome)
	// without returns what expect returns, but undoes its effects except those that a denied entry has, too.
	without(now int64, e *remote.Entry, expect func(now int64) model.Outcome) model.Outcome
}

func (h *history) alone(t *rapid.T) (remote.Entry, func(now int64) model.Outcome) {
	cost := rapid.Int64Range(1, min(5, h.algorithm.Capacity(h.limit))).Draw(t, "cost")
	return h.drawHold(t, cost)
}

func (h *history) grouped(t *rapid.T) (remote.Entry, func(now int64) model.Outcome) {
	capacity := h.algorithm.Capacity(h.limit)
	cost := drawUnits(capacity).Draw(t, "cost")
	if rapid.Bool().Draw(t, "for good") {
		return h.entry(t, lua.Take, cost)
	}
	terms := h.drawTerms(t)
	terms.ID = h.drawID(t)
	return remote.Entry{
		Key: h.key, Rule: h.rule, Operation: lua.Hold, Cost: cost,
		Hold: &remote.Hold{ID: terms.ID, Life: time.Duration(terms.Life) * time.Microsecond},
	}, func(now int64) model.Outcome { return h.reference.Hold(now, cost, false, terms) }
}

func (h *history) without(now int64, e *remote.Entry, expect func(now int64) model.Outcome) model.Outcome {
	if h.givesBack || e.Operation == lua.Hold {
		h.reference.GiveBack(now) // holds that have ended, before anything is decided
	}
	kept := h.reference
	h.reference = kept.Clone()
	defer func() { h.reference = kept }()
	return expect(now)
}

func (s *slotsHistory) alone(t *rapid.T) (remote.Entry, func(now int64) model.Outcome) {
	return s.draw(t)
}

func (s *slotsHistory) grouped(t *rapid.T) (remote.Entry, func(now int64) model.Outcome) {
	h, rule := drawHolder(t)
	units := drawUnits(h.Quota).Draw(t, "units")
	return remote.Entry{Key: s.key, Rule: rule, Cost: units}, func(now int64) model.Outcome { return s.reference.Acquire(now, h, units) }
}

func (s *slotsHistory) without(now int64, _ *remote.Entry, expect func(now int64) model.Outcome) model.Outcome {
	kept := s.reference.Clone()
	defer func() { s.reference = *kept }()
	return expect(now)
}

// mixedGroups checks that units which a group charges for good, holds for a time, or acquires are all charged or
// none (law 9), while holds are settled, extended and given back, and slots are released, in between.
func (s suite) mixedGroups(t *rapid.T) {
	members := []member{
		newHistory(t, s.newKey()), newHistory(t, s.newKey()), newHistory(t, s.newKey()),
		&slotsHistory{key: s.newKey()}, &slotsHistory{key: s.newKey()},
	}
	now := int64(epoch)
	for range rapid.IntRange(1, 20).Draw(t, "groups") {
		now += rapid.OneOf(
			rapid.Just(int64(0)), rapid.Int64Range(0, 400_000), rapid.Int64Range(0, 2*members[0].(*history).window()),
		).Draw(t, "gap")
		alone, aloneWill := members[rapid.IntRange(0, len(members)-1).Draw(t, "alone")].alone(t)
		entries, want := []remote.Entry{alone}, []model.Outcome{aloneWill(now)}
		chosen := rapid.SliceOfNDistinct(rapid.IntRange(0, len(members)-1), 1, -1, rapid.ID).Draw(t, "group")
		fit, expect := true, make([]func(int64) model.Outcome, len(chosen))
		for i, n := range chosen {
			e, will := members[n].grouped(t)
			e.Group = 1
			out := members[n].without(now, &e, will)
			fit = fit && out.Allowed
			entries, want, expect[i] = append(entries, e), append(want, out), will
		}
		for i := range expect {
			if fit {
				expect[i](now)
			}
		}
		for i, got := range s.run(t, entries, now) {
			status := got.Status
			switch {
			case i > 0 && want[i].Allowed && !fit:
				if status != remote.HeldBack {
					t.Fatalf("entry %d, %+v at %d: status %d of a group that is denied", i, entries[i], now, status)
				}
			case outcome(got) != want[i]:
				t.Fatalf("entry %d, %+v at %d (the group fits: %v):\ngot   %+v\nmodel %+v", i, entries[i], now, fit, outcome(got), want[i])
			}
		}
	}
}
