package conformance

import (
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/model"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// hugePast charges units of the past: a few, or as many as an entry can express.
func (s suite) hugePast(t *testing.T, l limit.Limit, reference model.Model, e remote.Entry, now int64) {
	t.Helper()
	past := make([]model.Past, 17)
	for i := range past {
		past[i] = model.Past{Units: l.Quota()/97 + int64(i), Age: l.Window().Microseconds() * int64(i) / 16}
		if e.Sequence%2 == 0 {
			past[i].Units = lua.MaxUnits
		}
	}
	e.Operation, e.Charges = lua.Charge, pastEntry(past).Charges
	s.check(t, e, now, reference.Charge(now, e.Marker, e.Sequence, past))
}

// hugeCounts checks law 10 for counts, which the script may charge as one cost: the time that all units take
// together goes far beyond 2^53 parts of a µs. All units come at the same time, so that one part too many or too
// few makes a difference of a unit. The counts come alone and beside another key.
func (s suite) hugeCounts(t *testing.T) {
	l := limit.Per(limit.MaxQuota-87, limit.MaxWindow-time.Microsecond).WithBurst(limit.MaxQuota - 87)
	for _, keys := range []int{1, 2} {
		entries, references := make([]remote.Entry, keys), make([]model.Model, keys)
		for i := range entries {
			entries[i].Key = s.newKey()
			entries[i].Rule, references[i] = newPair(t, l, limit.GCRA())
		}
		for _, count := range []int64{1, 3, 16, 257, 4_099, 16_411} {
			for _, cost := range []int64{1, 7, 251} {
				want := make([]model.Outcome, keys)
				for i := range entries {
					entries[i].Cost, entries[i].Count = cost, count
					// The model gives the same result for units of one moment whether they come one by one or
					// together (TestUnitsOfOneMomentAddUp); one by one, these units would take it a minute.
					want[i] = references[i].Decide(epoch, cost*count)
				}
				s.checkAll(t, entries, epoch, want)
			}
		}
	}
}

// hugeGroups checks the same for a group, whose entries are decided straight through unless their costs are too large
// for that: two charges fill the whole limit, to the last part of a µs.
func (s suite) hugeGroups(t *testing.T) {
	l := limit.Per(limit.MaxQuota-87, limit.MaxWindow-time.Microsecond).WithBurst(limit.MaxQuota - 87)
	rule, _ := newPair(t, l, limit.GCRA())
	for part := int64(3); part < 20; part++ {
		first := l.Quota() / part
		keys := []string{s.newKey(), s.newKey()}
		for _, cost := range []int64{first, l.Quota() - first} {
			var group []remote.Entry
			for _, key := range keys {
				group = append(group, remote.Entry{Key: key, Rule: rule, Cost: cost, Group: 1})
			}
			want := l.Quota() - first
			if cost != first {
				want = 0
			}
			for i, r := range s.run(t, group, epoch) {
				if r.Status != remote.Allowed || r.Remaining != want {
					t.Fatalf("entry %d of %d units: %+v, want it allowed, and %d units free", i, cost, r, want)
				}
			}
		}
	}
}

// refundsToAPart checks law 10 for refunds of which hardly as much is left as they ask for: what is left of the
// charge differs by parts of a µs.
func (s suite) refundsToAPart(t *testing.T) {
	l := limit.Per(3, 10*time.Second).WithBurst(20)
	whole := func(units int64) int64 { return units * 10_000_000 / 3 }
	for charged := int64(1); charged <= 6; charged++ {
		for units := int64(1); units <= charged; units++ {
			for off := int64(-1); off <= 1; off++ {
				rule, reference := newPair(t, l, limit.GCRA())
				e, later := remote.Entry{Key: s.newKey(), Rule: rule}, epoch+max(0, whole(charged)-whole(units)+off)
				for _, cost := range []int64{7, charged} {
					e.Cost = cost
					s.check(t, e, epoch, reference.Decide(epoch, cost))
				}
				refund := e
				refund.Operation, refund.Cost, refund.Charged, refund.Stamp = lua.Refund, units, charged, epoch
				s.check(t, refund, later, reference.Refund(later, epoch, charged, units))
				for units := int64(1); units < 20; units++ { // waits show parts of a µs, too
					e.Operation, e.Cost = lua.Peek, units
					s.check(t, e, later, reference.Peek(later, units))
				}
			}
		}
	}
}

// hugeAndOdd checks law 10 where it is hardest: products far above 2^53, intervals that are not a whole number of
// µs, prime windows and quotas. Every field equals the model's, which computes with big integers.
func (s suite) hugeAndOdd(t *testing.T) {
	year := limit.MaxWindow
	for _, l := range []limit.Limit{
		limit.Per(limit.MaxQuota, year),
		limit.Per(limit.MaxQuota-87, year-time.Microsecond),
		limit.Per(limit.MaxQuota-87, time.Millisecond).WithBurst(limit.MaxQuota - 87),
		limit.Per(1_000_003, year-time.Microsecond).WithBurst(1_000_003),
		limit.PerSecond(3_000_000),
		limit.PerSecond(700_000).WithBurst(7),
		limit.PerSecond(10_000_000),
		limit.Per(1, year),
		limit.Per(7, 1_000_003*time.Microsecond),
	} {
		for _, a := range []limit.Algorithm{
			limit.SlidingCounter(1, limit.Estimate),
			limit.SlidingCounter(7, limit.Estimate),
			limit.SlidingCounter(limit.MaxBuckets, limit.Estimate),
			limit.SlidingCounter(limit.MaxBuckets, limit.Strict),
			limit.GCRA(),
			limit.FixedWindow(),
		} {
			rule, reference := newPair(t, l, a)
			key, now, window := s.newKey(), int64(epoch), l.Window().Microseconds()
			capacity := a.Capacity(l)
			for i := range int64(60) {
				now += window * (i % 7) / 17
				cost := max(1, capacity/(3+i%5)-i)
				s.check(t, remote.Entry{Key: key, Rule: rule, Cost: cost}, now, reference.Decide(now, cost))
				if i%9 == 8 {
					s.hugePast(t, l, reference, remote.Entry{Key: key, Rule: rule, Marker: "a", Sequence: i}, now)
				}
			}
		}
	}
}
