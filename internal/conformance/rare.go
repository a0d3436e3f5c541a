package conformance

import (
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/model"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// oldChargeWithHoldsOver checks that units of the past which no longer count are not a charge, even if the same
// entry gives back a hold that has ended. After a charge, the key's time would not follow the clock back.
func (s suite) oldChargeWithHoldsOver(t *testing.T) {
	const window, life = 1000, 10
	l := limit.Per(100, window*time.Microsecond)
	for _, a := range []limit.Algorithm{limit.GCRA(), limit.SlidingLog(), limit.SlidingCounter(4, limit.Strict), limit.FixedWindow()} {
		rule, reference := newPair(t, l, a)
		e := remote.Entry{Key: s.newKey(), Rule: rule.GivesBack()}
		start := int64(epoch - epoch%window) // the start of a fixed window

		take := e
		take.Cost = 40
		s.check(t, take, start, reference.Decide(start, take.Cost))

		hold := e
		hold.Operation, hold.Cost, hold.Hold = lua.Hold, 20, &remote.Hold{ID: 1, Life: life * time.Microsecond}
		s.check(t, hold, start, reference.Hold(start, hold.Cost, false, model.HoldTerms{ID: 1, Life: life, GivesBack: true}))

		past := []model.Past{{Units: 3, Age: 2 * window}}
		charge := e
		charge.Operation, charge.Charges, charge.Marker, charge.Sequence = lua.Charge, pastEntry(past).Charges, "m", 1
		later := start + 2*life
		reference.GiveBack(later)
		s.check(t, charge, later, reference.Charge(later, "m", 1, past))

		back := start + life
		reference.GiveBack(back)
		s.check(t, take, back, reference.Decide(back, take.Cost))
	}
}

// changeFromHighRate checks law 10 where the previous limit let more than one unit return within a µs: the key's
// debt under the new limit is the same number of units.
func (s suite) changeFromHighRate(t *testing.T) {
	high, slow := limit.Per(8_786_470, 4691*time.Microsecond), limit.Per(16_389_879_266, limit.MaxWindow)
	_, reference := newPair(t, high.WithBurst(high.Quota()), limit.GCRA())
	key := s.newKey()
	for _, l := range []limit.Limit{high, slow} {
		l = l.WithBurst(l.Quota())
		rule, _ := newPair(t, l, limit.GCRA())
		if err := reference.Use(l, limit.GCRA()); err != nil {
			t.Fatal(err)
		}
		e := remote.Entry{Key: key, Rule: rule, Cost: 8_266_436}
		s.check(t, e, epoch, reference.Decide(epoch, e.Cost))
	}
}

// statedEmptyAfterAStep checks that a key without held units is as if it had never been used, even for the entries
// beside the one that stated that nothing is held, if its time had run ahead of a clock that was set back.
func (s suite) statedEmptyAfterAStep(t *testing.T) {
	h := model.Holder{Name: "aaaaaaaa", Quota: 9, TTL: 300_000}
	var id remote.Holder
	copy(id[:], h.Name)
	rule, err := remote.NewSlotsRule(limit.Concurrent(h.Quota), time.Duration(h.TTL)*time.Microsecond, id)
	if err != nil {
		t.Fatal(err)
	}
	var reference model.Slots
	e := remote.Entry{Key: s.newKey(), Rule: rule, Cost: 1}
	s.check(t, e, epoch, reference.Acquire(epoch, h, 1))

	const back = epoch - 1
	none, some := e, e
	none.Operation, none.Cost = lua.Slots, 0
	some.Operation, some.Cost = lua.Slots, 4
	s.checkAll(t, []remote.Entry{none, some}, back, []model.Outcome{reference.State(back, h, 0), reference.State(back, h, 4)})
}

// refundedHold checks what a log gives back for a hold whose units a refund has taken as the oldest ones: other units
// in their place, beside its own if the refund took only some of them.
func (s suite) refundedHold(t *testing.T) {
	l := limit.Per(20, time.Minute)
	for _, a := range []limit.Algorithm{limit.SlidingLog(), limit.SlidingLogZSet()} {
		for refunded := int64(1); refunded <= 5; refunded++ {
			rule, reference := newPair(t, l, a)
			e := remote.Entry{Key: s.newKey(), Rule: rule}
			hold, take, refund, settle, peek := e, e, e, e, e
			hold.Operation, hold.Cost, hold.Hold = lua.Hold, 3, &remote.Hold{ID: 1, Life: time.Minute}
			take.Cost = 6
			refund.Operation, refund.Cost, refund.Charged, refund.Stamp = lua.Refund, refunded, 6, epoch+1
			settle.Operation, settle.Hold = lua.Settle, hold.Hold
			peek.Operation, peek.Cost = lua.Peek, 20
			s.check(t, hold, epoch, reference.Hold(epoch, 3, false, model.HoldTerms{ID: 1, Life: 60_000_000}))
			s.check(t, take, epoch+1, reference.Decide(epoch+1, 6))
			s.check(t, refund, epoch+2, reference.Refund(epoch+2, epoch+1, 6, refunded))
			s.check(t, settle, epoch+3, reference.Settle(epoch+3, 0, 1))
			s.check(t, peek, epoch+4, reference.Peek(epoch+4, 20))
		}
	}
}
