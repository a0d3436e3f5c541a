package tiered

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/breaker"
	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// healthy fails the test if anything counts as an outage, or as a sign of one.
func healthy(t *testing.T, l *Limiter) {
	t.Helper()
	s := l.Stats()
	if l.State() != Healthy || l.shard.Breaker.State() != breaker.Closed || s.Missed.NotInTime != 0 || s.Missed.NoRoom != 0 {
		t.Errorf("%v, breaker %v, missed %+v", l.State(), l.shard.Breaker.State(), s.Missed)
	}
}

// Laws 3 and 6: if Redis has not decided within the time that the program set, the outage policy decides, without
// an error. The decision is charged once, whether or not Redis was asked.
func TestLaws3And6DecideBy(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		const slow, little, calls = 2 * time.Second, 100 * time.Millisecond, 6
		l := newLimiterOn(t, bubble.Client(t), redistest.Prefix(), Deadline(10*time.Second), FleetSize(1))
		r := newRule(t, l, "r", limit.PerHour(100), Use(limit.SlidingLog()))
		mustAllow(t, r, "k", 1)
		bubble.Late.Store(int64(slow))
		for range calls {
			began := time.Now()
			d, err := r.Allow(DecideBy(t.Context(), began.Add(little)), "k")
			if took := time.Since(began); took != little {
				t.Errorf("a decision took %v", took)
			}
			if err != nil || !d.Allowed || d.Tier != limit.TierOverload || d.ChargedAt != 0 {
				t.Errorf("%+v, %v", d, err)
			}
		}
		healthy(t, l)
		if n := l.Stats().Missed.OwnTime; n != calls {
			t.Errorf("%d decisions are counted, want %d", n, calls)
		}
		bubble.Late.Store(0)
		redistest.Eventually(t, "all is charged", func() bool {
			d, err := r.Peek(t.Context(), "k", 1)
			return err == nil && d.Tier == limit.TierRedis && !l.shard.Owes() && d.Remaining <= 100-1-calls
		})
		if d := mustAllow(t, r, "k", 1); d.Remaining != 100-2-calls || d.Tier != limit.TierRedis {
			t.Errorf("%+v, want %d remaining", d, 100-2-calls)
		}
	})
}

// Law 11: calls with little time do not affect the limits of others: the breaker stays closed, the limiter does
// not settle, and Redis decides other calls. What these calls grant is at most this instance's share, in addition
// to what Redis grants.
func TestLaw11DecideByIsNoMiss(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		const deadline, slow, little, quota = 500 * time.Millisecond, 100 * time.Millisecond, 20 * time.Millisecond, 40
		told := &states{}
		l := newLimiterOn(t, bubble.Client(t), redistest.Prefix(), Deadline(deadline), FleetSize(1), RememberDenials(0), OnStateChange(told.add))
		r := newRule(t, l, "r", limit.PerHour(quota), Use(limit.SlidingLog()))
		mustAllow(t, r, "other", 1)
		bubble.Late.Store(int64(slow))
		var allowed, byRedis atomic.Int64
		var callers sync.WaitGroup
		ask := func(ctx func() context.Context) {
			callers.Go(func() {
				// Misses during three deadlines would make the limiter settle.
				for end := time.Now().Add(5 * deadline); time.Now().Before(end); {
					d, err := r.Allow(ctx(), "k")
					switch {
					case err != nil:
						t.Error(err)
					case d.Allowed:
						allowed.Add(1)
					}
					if d.Tier == limit.TierRedis {
						byRedis.Add(1)
					}
				}
			})
		}
		for range 3 {
			ask(func() context.Context { return DecideBy(t.Context(), time.Now().Add(little)) })
		}
		ask(t.Context)
		callers.Wait()
		bubble.Late.Store(0)
		if s := l.Stats(); s.Missed.OwnTime < 20 || l.State() != Healthy || len(told.all()) > 0 {
			t.Errorf("%v, told %v, missed %+v", l.State(), told.all(), s.Missed)
		}
		if n := allowed.Load(); n < quota || n > 2*quota {
			t.Errorf("%d of %d units were granted", n, quota)
		}
		if byRedis.Load() == 0 {
			t.Error("Redis decided nothing")
		}
		t.Logf("%d granted of %d; Redis decided %d", allowed.Load(), quota, byRedis.Load())
	})
}

// DecideBy applies to every kind of call, even if its time is already over. If the caller's own context ends
// earlier, the caller gets the error of that context.
func TestDecideByCountsForAllCalls(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		const slow, little = 2 * time.Second, 100 * time.Millisecond
		l := newLimiterOn(t, bubble.Client(t), redistest.Prefix(), Deadline(5*time.Second), FleetSize(1))
		r := newRule(t, l, "r", limit.PerHour(100))
		jobs := newRule(t, l, "jobs", limit.Concurrent(5))
		mustAllow(t, r, "k", 1)
		bubble.Late.Store(int64(slow))
		for _, left := range []time.Duration{little, 0} {
			for _, call := range []struct {
				name string
				ask  func(context.Context) (limit.Decision, error)
			}{ // the first call is sent, and leaves its key in doubt
				{"Acquire", func(ctx context.Context) (limit.Decision, error) {
					_, d, err := jobs.Acquire(ctx, "k", 1)
					return d, err
				}},
				{"AllowUpTo", func(ctx context.Context) (limit.Decision, error) { return r.AllowUpTo(ctx, "k", 3) }},
				{"Peek", func(ctx context.Context) (limit.Decision, error) { return r.Peek(ctx, "k", 3) }},
				{"Hold", func(ctx context.Context) (limit.Decision, error) {
					_, d, err := r.Hold(ctx, "held", 1, time.Minute)
					return d, err
				}},
				{"AllowEach", func(ctx context.Context) (limit.Decision, error) {
					ds, err := l.AllowEach(ctx, Request{Rule: r, Key: "a", Cost: 1}, Request{Rule: r, Key: "b"})
					return ds[0], err
				}},
				{"AllowAll", func(ctx context.Context) (limit.Decision, error) {
					ds, err := l.AllowAll(ctx, Request{Rule: r, Key: "a", Cost: 1}, Request{Rule: r, Key: "b", Cost: 1})
					return ds[0], err
				}},
				{"TakeAll", func(ctx context.Context) (limit.Decision, error) {
					_, ds, err := l.TakeAll(ctx, Request{Rule: r, Key: "a", Cost: 1}, Request{Rule: jobs, Key: "k", Cost: 1})
					return ds[0], err
				}},
			} {
				began := time.Now()
				d, err := call.ask(DecideBy(t.Context(), began.Add(left)))
				if took := time.Since(began); err != nil || !d.Degraded() && !d.HeldBack || took > left {
					t.Errorf("%s with %v: %+v, %v, after %v", call.name, left, d, err, took)
				}
			}
		}
		healthy(t, l)
		ctx, cancel := context.WithTimeout(t.Context(), little)
		defer cancel()
		if d, err := r.Allow(DecideBy(ctx, time.Now().Add(20*little)), "k"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a caller in a hurry: %+v, %v", d, err)
		}
		bubble.Late.Store(0)
		if d, err := r.Wait(DecideBy(t.Context(), time.Now()), "k", 1); err != nil || d.Tier != limit.TierRedis {
			t.Errorf("Wait: %+v, %v", d, err)
		}
		redistest.Eventually(t, "slots in doubt are known again", func() bool {
			slot, d, err := jobs.Acquire(t.Context(), "k", 1)
			if slot != nil {
				slot.Release()
			}
			return err == nil && d.Tier == limit.TierRedis
		})
	})
}

// Law 11: a call whose DecideBy leaves at least the limiter's deadline counts as a miss, like any other call, if
// Redis does not answer.
func TestDecideByLateIsAMiss(t *testing.T) {
	t.Parallel()
	const deadline = 500 * time.Millisecond
	server := redistest.Start(t)
	l := newLimiterOn(t, server.Client(t), redistest.Prefix(), Deadline(deadline))
	r := newRule(t, l, "r", limit.PerHour(100))
	server.Pause()
	t.Cleanup(server.Resume)
	ask := func(by time.Duration) {
		if d, err := r.Allow(DecideBy(t.Context(), time.Now().Add(by)), "k"); err != nil || !d.Degraded() {
			t.Errorf("%+v, %v", d, err)
		}
	}
	ask(time.Hour)
	if m := l.Stats().Missed; m.NotInTime+m.NoRoom != 1 || m.OwnTime != 0 {
		t.Errorf("%+v", m)
	}
	redistest.Eventually(t, "Redis counts as lost", func() bool {
		ask(deadline)
		return l.State() == Outage
	})
	if m := l.Stats().Missed; m.NotInTime+m.NoRoom < 2 {
		t.Errorf("%+v: some had all the time that the limiter gives", m)
	}
}

// takingBack is a hook. Once armed, it delays the second command about key "a": it closes from, and waits until
// until is closed.
type takingBack struct {
	armed       atomic.Bool
	asked       atomic.Int64
	from, until chan struct{}
}

func (b *takingBack) DialHook(next redis.DialHook) redis.DialHook { return next }

func (b *takingBack) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (b *takingBack) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		about := slices.ContainsFunc(cmd.Args(), func(arg any) bool { key, _ := arg.(string); return strings.Contains(key, ":{a}:") })
		if b.armed.Load() && about && b.asked.Add(1) == 2 {
			close(b.from)
			<-b.until
		}
		return next(ctx, cmd)
	}
}

// Laws 7 and 9: on a Cluster, charges are taken back even after the time is over, but no caller waits for that.
func TestDecideByEndsWhileUnitsAreTakenBack(t *testing.T) {
	t.Parallel()
	client, back := redistest.SharedCluster(t).Client(t), &takingBack{from: make(chan struct{}), until: make(chan struct{})}
	client.AddHook(back)
	l := newLimiterOn(t, client, redistest.Prefix(), Deadline(10*time.Second), RememberDenials(0))
	r := newRule(t, l, "r", limit.PerHour(10), Use(limit.SlidingLog()))
	mustAllow(t, r, "a", 1)
	mustAllow(t, r, "b", 10)
	giveUp := time.AfterFunc(time.Minute, func() { t.Error("the caller waits"); close(back.until) })
	back.armed.Store(true)
	ds, err := l.AllowAll(DecideBy(t.Context(), time.Now().Add(3*time.Second)), Request{Rule: r, Key: "a", Cost: 5}, Request{Rule: r, Key: "b", Cost: 1})
	if err != nil || !ds[0].HeldBack || !ds[1].Denied() || ds[1].Tier != limit.TierRedis {
		t.Errorf("%+v, %v", ds, err)
	}
	<-back.from
	if giveUp.Stop() {
		close(back.until)
	}
	redistest.Eventually(t, "the units are back", func() bool {
		d, err := r.Peek(t.Context(), "a", 1)
		return err == nil && d.Remaining == 9
	})
}
