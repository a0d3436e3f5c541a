package tiered

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/outage"
	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/local"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// heldUp is a Decider that delays a release before sending it, as if the goroutine of the caller were paused.
type heldUp struct {
	outage.Decider
	meanwhile func() // nil: no release is delayed
}

func (h *heldUp) Decide(ctx context.Context, e remote.Entry) (remote.Reply, error) {
	if meanwhile := h.meanwhile; meanwhile != nil && e.Operation == lua.Refund {
		h.meanwhile = nil
		meanwhile()
	}
	return h.Decider.Decide(ctx, e)
}

// Law 13: a release that is delayed for longer than the TTL of its slot takes no units from slots that were
// acquired meanwhile.
func TestLaw13AReleaseThatIsHeldUpTakesNoLaterSlots(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		prefix := redistest.Prefix()
		l, other := newLimiterOn(t, bubble.Client(t), prefix), newLimiterOn(t, bubble.Client(t), prefix)
		way := &heldUp{Decider: l.shard.Decider}
		l.shard.Decider = way // before any goroutine runs that asks for slots
		const ttl = 10 * time.Second
		jobs, elsewhere := newRule(t, l, "jobs", limit.Concurrent(1), SlotTTL(ttl)), newRule(t, other, "jobs", limit.Concurrent(1), SlotTTL(ttl))
		first := mustAcquire(t, jobs, "k", 1)
		var second *Slot
		way.meanwhile = func() {
			time.Sleep(2 * ttl)
			second = mustAcquire(t, jobs, "k", 1)
		}
		first.Release()
		mustBeFull(t, elsewhere, "k", 1)
		if !second.Held() {
			t.Error("the later slot is lost")
		}
		second.Release()
		redistest.Eventually(t, "the unit is free", func() bool {
			slot, _, err := elsewhere.Acquire(t.Context(), "k", 1)
			return err == nil && slot != nil
		})
	})
}

// Law 12: a call that passed the check before Close, but goes on only after Close has released all slots,
// acquires none, because nobody would release it.
func TestLaw12NoSlotIsAcquiredAfterClose(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	r := newRule(t, l, "jobs", limit.Concurrent(1))
	q := r.ask("k", 1, lua.Take)
	if err := r.checkSlots(t.Context(), q.key.original, q.cost); err != nil {
		t.Fatal(err)
	}
	l.closed.Store(true)
	l.closeSlots()
	if _, entered, err := l.enterSlots(t.Context(), l.config.deadline, &q); !errors.Is(err, limit.ErrClosed) {
		t.Errorf("entered %v, %v", entered, err)
	}
	if slot, d := q.acquireAlone(remote.ErrNoAnswer); slot != nil || d.Allowed {
		t.Errorf("without Redis: %v, %+v", slot, d)
	}
	l.closed.Store(false) // so that the test's own Close runs
}

// Law 11: while Redis does not yet know what other instances hold, concurrent callers together stay within this
// instance's share, whether or not they wait in a queue.
func TestLaw11SlotsAskedForAtTheSameTimeStayWithinTheShare(t *testing.T) {
	const units, callers = 10, 10
	for what, acquire := range map[string]func(context.Context, *Rule) (*Slot, error){
		"Acquire": func(ctx context.Context, r *Rule) (*Slot, error) {
			slot, _, err := r.Acquire(ctx, "k", 1)
			return slot, err
		},
		"AcquireWait": func(ctx context.Context, r *Rule) (*Slot, error) {
			slot, err := r.AcquireWait(ctx, "k", 1)
			if errors.Is(err, context.DeadlineExceeded) {
				err = nil
			}
			return slot, err
		},
		"TakeAll": func(ctx context.Context, r *Rule) (*Slot, error) {
			grants, _, err := r.limiter.TakeAll(ctx, Request{Rule: r, Key: "k", Cost: 1})
			if grants == nil {
				return nil, err
			}
			return grants[0].Slot, err
		},
	} {
		t.Run(what, func(t *testing.T) {
			redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
				l := settling(t, bubble)
				r := newRule(t, l, "jobs", limit.Concurrent(units))
				if d, err := r.Peek(t.Context(), "k", 1); err != nil || !d.Allowed || d.Remaining != units/2 {
					t.Errorf("within the share: %+v, %v", d, err)
				}
				if d, err := r.Peek(t.Context(), "k", units/2+1); err != nil || d.Allowed || d.Remaining != units/2 {
					t.Errorf("beyond the share: %+v, %v", d, err)
				}
				bubble.Late.Store(int64(20 * time.Millisecond))
				ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				defer cancel()
				var held atomic.Int64
				var all sync.WaitGroup
				for range callers {
					all.Go(func() {
						slot, err := acquire(ctx, r)
						if err != nil {
							t.Error(err)
						}
						if slot != nil {
							held.Add(1)
						}
					})
				}
				all.Wait()
				if l.State() != Settling {
					t.Errorf("it is %v by now", l.State())
				}
				if n := held.Load(); n != units/2 {
					t.Errorf("%d units are held, want the %d of the share", n, units/2)
				}
				bubble.Late.Store(0)
			})
		})
	}
}

// settling returns a limiter that is settling, in a fleet of two, in a bubble.
func settling(t *testing.T, bubble *redistest.Bubble) *Limiter {
	t.Helper()
	prefix := redistest.Prefix()
	l := newLimiterOn(t, bubble.Client(t), prefix)
	newLimiterOn(t, bubble.Client(t), prefix) // the other instance of the fleet
	redistest.Eventually(t, "the fleet is known", func() bool { return l.FleetSize() == 2 })
	l.shard.Breaker.ForceOpen(errors.New("Redis is lost"))
	redistest.Eventually(t, "Redis is back", func() bool { return l.State() == Settling })
	return l
}

// If Redis is lost after a group has reserved units of the shares and before the group asks Redis, the group gets
// the units that it reserved.
func TestAGroupHasWhatItReserved(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		l := settling(t, bubble)
		requests := []Request{
			{Rule: newRule(t, l, "jobs", limit.Concurrent(10)), Key: "k", Cost: 5},
			{Rule: newRule(t, l, "rate", limit.PerMinute(10)), Key: "k", Cost: 5},
		}
		questions := l.questionsOf(requests)
		g := group{limiter: l, questions: questions, entries: entriesOf(questions), decisions: make([]limit.Decision, 2), grants: make(Grants, 2), acquires: true}
		if !g.reserve(t.Context()) {
			t.Fatalf("the shares have no room: %+v", g.decisions)
		}
		l.shard.Breaker.ForceOpen(errors.New("Redis is lost again"))
		ds, err := g.decide(t.Context(), [][]int{{0, 1}})
		if err != nil || !ds[0].Allowed || !ds[1].Allowed || !g.grants[0].Slot.Held() {
			t.Errorf("%+v, %v", ds, err)
		}
	})
}

// Law 7: a call that has waited for a key in doubt, or for the other limits of its group, has only the rest of
// the deadline for its trip.
func TestLaw7AcquireHasOneDeadline(t *testing.T) {
	const deadline = time.Second
	for what, acquire := range map[string]func(t *testing.T, l *Limiter, slow func()){
		"in doubt": func(t *testing.T, l *Limiter, slow func()) {
			r := newRule(t, l, "jobs", limit.Concurrent(5))
			mustAcquire(t, r, "k", 1)
			slow()
			l.slots.table.Doubt(l.now(), func(local.HeldKey) bool { return true })
			if slot, d, err := r.Acquire(t.Context(), "k", 1); slot != nil || err != nil || d.Allowed {
				t.Errorf("%v, %+v, %v", slot, d, err)
			}
		},
		"a group in doubt": func(t *testing.T, l *Limiter, slow func()) {
			r := newRule(t, l, "jobs", limit.Concurrent(5))
			mustAcquire(t, r, "k", 1)
			slow()
			l.slots.table.Doubt(l.now(), func(local.HeldKey) bool { return true })
			if grants, ds, err := l.TakeAll(t.Context(), Request{Rule: r, Key: "k", Cost: 1}); grants != nil || err != nil || ds[0].Allowed {
				t.Errorf("%v, %+v, %v", grants, ds, err)
			}
		},
		"a dry run beside another limit": func(t *testing.T, l *Limiter, slow func()) {
			r, dry := newRule(t, l, "rate", limit.PerMinute(5)), newRule(t, l, "tried", limit.Concurrent(5), DryRun())
			slow()
			if grants, ds, err := l.TakeAll(t.Context(), Request{Rule: r, Key: "k", Cost: 1}, Request{Rule: dry, Key: "k", Cost: 1}); grants == nil || err != nil || !ds[0].Allowed || !ds[1].DryRun {
				t.Errorf("%v, %+v, %v", grants, ds, err)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
				l := newLimiterOn(t, bubble.Client(t), redistest.Prefix(), Deadline(deadline))
				var began time.Time
				acquire(t, l, func() { bubble.Late.Store(int64(9 * deadline / 10)); began = time.Now() })
				if took := time.Since(began); took > deadline {
					t.Errorf("it took %v, with a deadline of %v", took, deadline)
				}
				if missed := l.Stats().Missed; missed.NotInTime != 1 || missed.OwnTime != 0 { // no DecideBy was set
					t.Errorf("missed: %+v", missed)
				}
				bubble.Late.Store(0)
			})
		})
	}
}
