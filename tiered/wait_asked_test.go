package tiered

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlimit/tierlimit/internal/outage"
	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/local"
	"github.com/tierlimit/tierlimit/remote"
)

// askedForSeveral is a Decider. Before it sends a question for several waiters, it calls meanwhile, once. If meanwhile
// returns an error, that is the answer.
type askedForSeveral struct {
	outage.Decider
	meanwhile atomic.Pointer[func() error] // nil: the question is sent at once
	cancelled atomic.Bool                  // the question's context had ended when meanwhile returned
}

func (a *askedForSeveral) Decide(ctx context.Context, e remote.Entry) (remote.Reply, error) {
	if e.Count > 1 {
		if meanwhile := a.meanwhile.Swap(nil); meanwhile != nil {
			err := (*meanwhile)()
			a.cancelled.Store(ctx.Err() != nil)
			if err != nil {
				return remote.Reply{}, err
			}
		}
	}
	return a.Decider.Decide(ctx, e)
}

func (a *askedForSeveral) next(meanwhile func() error) { a.meanwhile.Store(&meanwhile) }

// newAskedForSeveral returns a limiter with such a Decider.
func newAskedForSeveral(t *testing.T, bubble *redistest.Bubble, prefix string) (*Limiter, *askedForSeveral) {
	l := newLimiterOn(t, bubble.Client(t), prefix)
	way := &askedForSeveral{Decider: l.shard.Decider}
	l.shard.Decider = way
	return l, way
}

// Slots that Redis grants to callers that have left meanwhile are released, and the slots of the others are kept.
func TestLaw13SlotsOfWhoHasLeftAreReleased(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		prefix := redistest.Prefix()
		l, way := newAskedForSeveral(t, bubble, prefix)
		jobs := newRule(t, l, "jobs", limit.Concurrent(3))
		elsewhere := newRule(t, newLimiterOn(t, bubble.Client(t), prefix), "jobs", limit.Concurrent(3))
		all := mustAcquire(t, elsewhere, "k", 3)

		patient := make(chan *Slot, 1)
		go func() {
			slot, err := jobs.AcquireWait(t.Context(), "k", 1)
			if err != nil {
				t.Error(err)
			}
			patient <- slot
		}()
		redistest.Eventually(t, "the patient one waits", func() bool { return waiting(l, "jobs", "k") == 1 })
		ctx, leave := context.WithCancel(t.Context())
		var others sync.WaitGroup
		for range 2 {
			others.Go(func() {
				if slot, err := jobs.AcquireWait(ctx, "k", 1); slot != nil || !errors.Is(err, context.Canceled) {
					t.Errorf("%v, %v", slot, err)
				}
			})
		}
		redistest.Eventually(t, "all of them wait", func() bool { return waiting(l, "jobs", "k") == 3 })
		way.next(func() error {
			leave()
			others.Wait()
			all.Release()
			return nil
		})
		kept := <-patient
		var free *Slot
		redistest.Eventually(t, "two units are free", func() (ok bool) {
			free, _, _ = elsewhere.Acquire(t.Context(), "k", 2)
			return free != nil
		})
		if mustBeFull(t, elsewhere, "k", 1); !kept.Held() {
			t.Error("the slot of the caller that waited on is lost")
		}
	})
}

// A grant is counted only if a caller gets it. Of three waiters for which Redis grants units, two have left meanwhile,
// and what they were granted is given back.
func TestGrantsOfWhoHasLeftAreNotCounted(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		l, way := newAskedForSeveral(t, bubble, redistest.Prefix())
		r := newRule(t, l, "r", limit.PerMinute(3), Use(limit.SlidingLog()))
		jobs := newRule(t, l, "jobs", limit.Concurrent(3))
		mustAllow(t, r, "k", 3)
		held := mustAcquire(t, jobs, "k", 3)
		for name, c := range map[string]struct {
			wait func(context.Context) error
			free func()
		}{
			"r": {func(ctx context.Context) error {
				_, err := r.Wait(ctx, "k", 1)
				return err
			}, func() { _ = r.Reset(t.Context(), "k") }},
			"jobs": {func(ctx context.Context) error {
				_, err := jobs.AcquireWait(ctx, "k", 1)
				return err
			}, held.Release},
		} {
			patient := make(chan error, 1)
			go func() { patient <- c.wait(t.Context()) }()
			redistest.Eventually(t, "the patient one waits", func() bool { return waiting(l, name, "k") == 1 })
			ctx, leave := context.WithCancel(t.Context())
			var others sync.WaitGroup
			for range 2 {
				others.Go(func() {
					if err := c.wait(ctx); !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
				})
			}
			redistest.Eventually(t, "all of them wait", func() bool { return waiting(l, name, "k") == 3 })
			way.next(func() error {
				leave()
				others.Wait()
				c.free()
				return nil
			})
			if name == "r" { // nothing else makes the first waiter ask again soon
				l.lines.release(local.HeldKey{Rule: name, Key: "k"})
			}
			if err := <-patient; err != nil {
				t.Error(err)
			}
			if s := ruleStats(l, name); s.Decisions[limit.TierRedis].Allowed != 2 || s.Errors.Cancelled != 2 {
				t.Errorf("%s: %+v, want 2 grants, to the first caller and to the patient one, and 2 calls that were cancelled", name, s)
			}
		}
	})
}

// If Redis cannot be asked a question for several waiters, the outage policy decides about each of them, and Redis is
// charged later for what they were granted.
func TestWhoWaitsTogetherIsDecidedByThePolicy(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		l, way := newAskedForSeveral(t, bubble, redistest.Prefix())
		r := newRule(t, l, "r", limit.PerMinute(10), Use(limit.SlidingLog()), OnOutage(Allow))
		mustAllow(t, r, "k", 10)
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				if d, err := r.Wait(t.Context(), "k", 2); err != nil || !d.Allowed || d.Granted != 2 || !d.Degraded() {
					t.Errorf("%+v, %v", d, err)
				}
			})
		}
		synctest.Wait()
		way.next(func() error { return &net.OpError{Op: "dial", Err: errors.New("refused")} })
		if err := r.Reset(t.Context(), "k"); err != nil { // now there are units for all of them
			t.Error(err)
		}
		all.Wait()
		redistest.Eventually(t, "Redis is charged for all", func() bool {
			d, err := r.Peek(t.Context(), "k", 1)
			return err == nil && d.Remaining == 4
		})
	})
}

// An error that is no outage ends the wait of the first waiter only. Redis decides about the others.
func TestAnErrorOfOneWhoWaitsIsNotForTheOthers(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		l, way := newAskedForSeveral(t, bubble, redistest.Prefix())
		r := newRule(t, l, "r", limit.PerMinute(10), Use(limit.SlidingLog()))
		mustAllow(t, r, "k", 10)
		errs := make(chan error, 3)
		for range cap(errs) {
			go func() {
				d, err := r.Wait(t.Context(), "k", 2)
				if err == nil && d.Tier != limit.TierRedis {
					t.Errorf("%+v", d)
				}
				errs <- err
			}()
		}
		synctest.Wait() // they wait until the units are free
		way.next(func() error { return limit.ErrClosed })
		failed := 0
		for range cap(errs) {
			if err := <-errs; errors.Is(err, limit.ErrClosed) {
				failed++
			} else if err != nil {
				t.Error(err)
			}
		}
		if failed != 1 {
			t.Errorf("%d callers got the error, want 1", failed)
		}
	})
}

// A denial of callers that have left meanwhile does not hold up a caller behind them that wants less.
func TestADenialOfWhoHasLeftHoldsUpNobody(t *testing.T) {
	for name, oneBehind := range map[string]bool{"nobody else waits": false, "one waits for less": true} {
		t.Run(name, func(t *testing.T) {
			redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
				l, way := newAskedForSeveral(t, bubble, redistest.Prefix())
				r := newRule(t, l, "r", limit.PerHour(10), Use(limit.SlidingLog()))
				mustAllow(t, r, "k", 9)
				ctx, leave := context.WithCancel(t.Context())
				var large, small sync.WaitGroup
				for i := range 2 {
					large.Go(func() { _, _ = r.Wait(ctx, "k", 2) })
					synctest.Wait()
					if n := waiting(l, "r", "k"); n != i+1 {
						t.Fatalf("%d wait", n)
					}
				}
				began := time.Now()
				way.next(func() error {
					if oneBehind {
						small.Go(func() {
							// This is less time than those in front of it are told to wait.
							ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
							defer cancel()
							if d, err := r.Wait(ctx, "k", 1); err != nil || !d.Allowed {
								t.Errorf("%+v, %v", d, err)
							}
						})
						redistest.Eventually(t, "it waits", func() bool { return waiting(l, "r", "k") == 3 })
					}
					leave()
					large.Wait()
					return nil
				})
				l.lines.release(local.HeldKey{Rule: "r", Key: "k"}) // so that they are asked for again
				large.Wait()
				synctest.Wait()
				small.Wait()
				if took := time.Since(began); took > time.Minute {
					t.Errorf("the one behind was served after %v, but its unit was free", took)
				}
				if n := waiting(l, "r", "k"); n != 0 {
					t.Errorf("%d still wait", n)
				}
			})
		})
	}
}

// A grant of a caller that has left goes to nobody who wants more.
func TestWhoWantsMoreGetsNoGrantOfWhoHasLeft(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		l, way := newAskedForSeveral(t, bubble, redistest.Prefix())
		r := newRule(t, l, "r", limit.PerHour(10), Use(limit.SlidingLog()))
		mustAllow(t, r, "k", 10)
		ctx, leave := context.WithCancel(t.Context())
		var staying, leaving sync.WaitGroup
		wait := func(all *sync.WaitGroup, ctx context.Context, cost int64) {
			all.Go(func() {
				d, err := r.Wait(ctx, "k", cost)
				if left := errors.Is(err, context.Canceled); all == &leaving && !left || all == &staying && d.Granted != cost {
					t.Errorf("cost %d: %+v, %v", cost, d, err)
				}
			})
			synctest.Wait()
		}
		wait(&staying, t.Context(), 1)
		wait(&leaving, ctx, 1)
		wait(&staying, t.Context(), 3)
		way.next(func() error { leave(); leaving.Wait(); return nil })
		if err := r.Reset(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		staying.Wait()
		synctest.Wait()
		if n := left(t, r, "k"); n != 6 {
			t.Errorf("%d units are left, want 6", n)
		}
	})
}

// askedForOne is a Decider. Before it sends the next question for a single caller, it calls meanwhile.
type askedForOne struct {
	outage.Decider
	meanwhile func() // nil: the question is sent at once
}

func (a *askedForOne) DecideInto(ctx context.Context, e *remote.Entry, reply *remote.Reply) error {
	if meanwhile := a.meanwhile; meanwhile != nil {
		a.meanwhile = nil
		meanwhile()
	}
	return a.Decider.DecideInto(ctx, e, reply)
}

// A denial that ends the wait of a caller says nothing about a caller behind it that wants less.
func TestADenialOfWhoIsTurnedAwayHoldsUpNobody(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		l := newLimiterOn(t, bubble.Client(t), redistest.Prefix())
		r := newRule(t, l, "r", limit.PerHour(10), Use(limit.SlidingLog()))
		mustAllow(t, r, "k", 5)
		var all sync.WaitGroup
		wait := func(within time.Duration, cost int64, want error) {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), within)
				defer cancel()
				began := time.Now()
				if _, err := r.Wait(ctx, "k", cost); !errors.Is(err, want) || want == nil && time.Since(began) > time.Minute {
					t.Errorf("cost %d: %v after %v, want %v", cost, err, time.Since(began), want)
				}
			})
		}
		wait(61*time.Minute, 10, limit.ErrWouldExceedDeadline)
		synctest.Wait()
		time.Sleep(10 * time.Minute)
		mustAllow(t, r, "k", 1) // from now on, ten units are free in an hour
		l.shard.Decider = &askedForOne{l.shard.Decider, func() {
			wait(30*time.Minute, 1, nil)
			redistest.Eventually(t, "it waits", func() bool { return waiting(l, "r", "k") == 2 })
		}}
		l.lines.release(local.HeldKey{Rule: "r", Key: "k"}) // so that Redis is asked again
		all.Wait()
	})
}

// answeredEarlier is a Decider that calls meanwhile, once, between an answer of Redis to a single caller and its arrival.
type answeredEarlier struct {
	outage.Decider
	meanwhile func()
}

func (a *answeredEarlier) DecideInto(ctx context.Context, e *remote.Entry, reply *remote.Reply) error {
	err := a.Decider.DecideInto(ctx, e, reply)
	if meanwhile := a.meanwhile; meanwhile != nil {
		a.meanwhile = nil
		meanwhile()
	}
	return err
}

// A denial on its way while units are given back does not hold up the caller that waits for it.
func TestADenialFromBeforeUnitsCameBackHoldsUpNobody(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		l := newLimiterOn(t, bubble.Client(t), redistest.Prefix())
		r := newRule(t, l, "r", limit.PerHour(10), Use(limit.SlidingLog()))
		used := mustAllow(t, r, "k", 10)
		l.shard.Decider = &answeredEarlier{l.shard.Decider, func() { mustRefund(t, r, "k", &used, 10) }}
		began := time.Now()
		if d, err := r.Wait(t.Context(), "k", 1); err != nil || time.Since(began) > time.Minute {
			t.Errorf("%+v, %v after %v", d, err, time.Since(began))
		}
	})
}

// If the caller in front leaves, a caller behind it that wants less does not wait for the units of the other.
func TestWhoLeavesHoldsUpNobody(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		l := newLimiterOn(t, bubble.Client(t), redistest.Prefix())
		r := newRule(t, l, "r", limit.PerHour(10), Use(limit.SlidingLog()))
		mustAllow(t, r, "k", 5)
		ctx, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { _, _ = r.Wait(ctx, "k", 10) })
		synctest.Wait()
		began := time.Now()
		all.Go(func() {
			if d, err := r.Wait(t.Context(), "k", 1); err != nil || time.Since(began) > time.Minute {
				t.Errorf("%+v, %v after %v", d, err, time.Since(began))
			}
		})
		synctest.Wait()
		leave()
		all.Wait()
	})
}

// The units of a caller that has left do not count for those that come later, which would be turned away too early.
func TestUnitsOfWhoHasLeftDoNotCount(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		l := newLimiterOn(t, bubble.Client(t), redistest.Prefix())
		r := newRule(t, l, "r", limit.PerHour(10), Use(limit.SlidingLog()))
		mustAllow(t, r, "k", 10)
		ctx, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { _, _ = r.Wait(ctx, "k", 10) })
		synctest.Wait()
		all.Go(func() { _, _ = r.Wait(t.Context(), "k", 1) })
		synctest.Wait()
		leave()
		synctest.Wait()
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 61*time.Minute)
			defer cancel()
			if d, err := r.Wait(ctx, "k", 1); err != nil {
				t.Errorf("%+v, %v", d, err)
			}
		})
		all.Wait()
	})
}

// waitTogether makes callers wait for a key whose units are used up, and returns a function that asks for all of them
// again. They leave at the end of the test.
func waitTogether(t *testing.T, r *Rule, callers int, cost int64) (askAgain func()) {
	ctx, leave := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range callers {
		all.Go(func() { _, _ = r.Wait(ctx, "k", cost) })
	}
	t.Cleanup(func() { leave(); all.Wait() })
	synctest.Wait()
	return func() {
		r.limiter.lines.release(local.HeldKey{Rule: r.name, Key: "k"})
		synctest.Wait()
	}
}

// Law 11: callers that wait together are granted nothing beyond this instance's share while Redis does not know of all
// grants.
func TestLaw11WhoWaitsTogetherSettles(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		l, _ := newAskedForSeveral(t, bubble, redistest.Prefix())
		r := newRule(t, l, "r", limit.PerHour(10), Use(limit.SlidingLog()))
		mustAllow(t, r, "k", 10)
		askAgain := waitTogether(t, r, 3, 2)
		if err := bubble.Client(t).FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		redistest.Eventually(t, "the loss is noticed", func() bool { return l.State() == Settling })
		if askAgain(); waiting(l, "r", "k") != 3 {
			t.Errorf("%d still wait, want 3: all units are granted, although Redis has forgotten it", waiting(l, "r", "k"))
		}
	})
}

// If the first of the callers that are asked for together leaves, the others get the answer, and what was granted to the
// first is given back.
func TestWhoLeavesEndsNoTripOfTheOthers(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		l, way := newAskedForSeveral(t, bubble, redistest.Prefix())
		r := newRule(t, l, "r", limit.PerHour(10), Use(limit.SlidingLog()))
		used := mustAllow(t, r, "k", 10)
		ctx, leave := context.WithCancel(t.Context())
		var first, others sync.WaitGroup
		first.Go(func() {
			if _, err := r.Wait(ctx, "k", 2); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
		synctest.Wait()
		for range 2 {
			others.Go(func() {
				if d, err := r.Wait(t.Context(), "k", 2); err != nil || d.Tier != limit.TierRedis {
					t.Errorf("%+v, %v", d, err)
				}
			})
		}
		synctest.Wait()
		trips := tripsOf(l)
		way.next(func() error { leave(); first.Wait(); return nil })
		mustRefund(t, r, "k", &used, 10)
		others.Wait()
		synctest.Wait()
		if n := tripsOf(l) - trips; n != 3 || way.cancelled.Load() {
			t.Errorf("%d trips for two refunds and those who wait for one; the question was cancelled: %v", n, way.cancelled.Load())
		}
		if n := left(t, r, "k"); n != 6 {
			t.Errorf("%d units are left, want 6", n)
		}
	})
}

// Law 7: callers that wait together are not asked for together if that would keep Redis busy for too long.
func TestLaw7WhoWaitsForVeryMuchIsAskedForAlone(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		l, way := newAskedForSeveral(t, bubble, redistest.Prefix())
		r := newRule(t, l, "r", limit.PerHour(maxWork), Use(limit.SlidingLog()))
		mustAllow(t, r, "k", maxWork)
		askAgain := waitTogether(t, r, 2, maxWork/2+1)
		way.next(func() error { t.Error("they are asked for together"); return nil })
		askAgain()
	})
}

// Callers are asked for one by one if a lease may serve them without a trip, or if their denials count.
func TestWhoWaitsIsNotAlwaysAskedForTogether(t *testing.T) {
	for name, options := range map[string][]RuleOption{
		"lease":       {Lease(50)},
		"CountDenied": {CountDenied(), Use(limit.FixedWindow()), DenialLife(0)},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
				l, way := newAskedForSeveral(t, bubble, redistest.Prefix())
				r := newRule(t, l, "r", limit.PerMinute(100), options...)
				for mustAllow(t, r, "k", 1).Allowed {
				}
				way.next(func() error {
					t.Error("Redis is asked for several callers at once")
					return nil
				})
				var all sync.WaitGroup
				for range 3 {
					all.Go(func() {
						if _, err := r.Wait(t.Context(), "k", 1); err != nil {
							t.Error(err)
						}
					})
				}
				synctest.Wait()
				if err := r.Reset(t.Context(), "k"); err != nil {
					t.Error(err)
				}
				all.Wait()
			})
		})
	}
}
