package tiered

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/breaker"
	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// another adds a member to a limiter's fleet. The function that it returns sends a heartbeat of the member, which
// says whether the member has granted units that it has not charged yet.
func another(t *testing.T, l *Limiter) (heartbeat func(unsettled bool)) {
	f := remote.NewFleet(l.shard.Decider.(*remote.Batcher), l.keys, "another", time.Hour, 1)
	return func(unsettled bool) {
		t.Helper()
		if _, err := f.Heartbeat(context.Background(), unsettled); err != nil {
			t.Fatal(err)
		}
	}
}

// states records changes of state.
type states struct {
	mu   sync.Mutex
	seen []State
}

func (s *states) add(to State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, to)
}

func (s *states) all() []State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.seen)
}

// peekFrom returns how many units of a rule's limit Redis leaves to a key. A limiter that settles would also take
// its own share into account.
func peekFrom(t *testing.T, server *redistest.Server, prefix string, r *Rule, key string) int64 {
	t.Helper()
	l := newLimiterOn(t, server.Client(t), prefix, Deadline(5*time.Second))
	defer l.Close()
	return left(t, newRule(t, l, r.name, r.limit, Use(r.algorithm)), key)
}

// Law 11: after an outage, both Redis and this instance's share must allow a request, until all instances have
// charged the units that they granted. Then Redis decides alone. Each change of state is reported.
func TestLaw11BothMustAgreeUntilAllHaveCharged(t *testing.T) {
	t.Parallel()
	server, prefix, told := redistest.Start(t), redistest.Prefix(), &states{}
	l := newLimiterOn(t, server.Client(t), prefix, Deadline(5*time.Second), RememberDenials(0), OnStateChange(told.add))
	r, other := newRule(t, l, "r", limit.PerHour(10)), another(t, l)
	group := newRule(t, l, "group", limit.PerHour(100))
	free, err := r.WithOutage(Allow)
	if err != nil {
		t.Fatal(err)
	}
	other(true)
	redistest.Eventually(t, "there are two", func() bool { return l.FleetSize() == 2 })

	server.Pause()
	l.shard.Breaker.ForceOpen(errors.New("lost"))
	if d := mustAllow(t, r, "k", 4); !d.Allowed || !d.Degraded() {
		t.Fatalf("%+v", d)
	}
	server.Resume()
	redistest.Eventually(t, "Redis is back", func() bool { return l.State() == Settling })
	redistest.Eventually(t, "the 4 are charged", func() bool { units, _ := l.ledger.Waiting(); return units == 0 && !l.shard.Owes() })
	if remaining := peekFrom(t, server, prefix, r, "k"); remaining != 6 {
		t.Errorf("%d remain in Redis, want 6", remaining)
	}
	redistest.Eventually(t, "there are two again, without the limiter that has peeked", func() bool { return l.FleetSize() == 2 })
	if charged := l.Stats().ChargedBackUnits; charged != 4 {
		t.Errorf("%v units were charged", charged)
	}
	for _, want := range []struct {
		allowed bool
		tier    limit.Tier
	}{{true, limit.TierRedis}, {false, limit.TierFallback}} { // its share is 5
		if d := mustAllow(t, r, "k", 1); d.Allowed != want.allowed || d.Tier != want.tier || d.Degraded() != (want.tier == limit.TierFallback) || d.Allowed == (d.RetryAfter > 0) {
			t.Errorf("%+v, want %+v", d, want)
		}
	}
	if n := recorded(r, "k"); n != 5 {
		t.Errorf("%d units on record, want 5", n)
	}
	if d, err := r.AllowUpTo(context.Background(), "new", 10); err != nil || d.Granted != 5 || d.Tier != limit.TierRedis {
		t.Errorf("up to 10 of a share of 5: %+v, %v", d, err)
	}
	if d, err := r.Peek(context.Background(), "k", 1); err != nil || d.Allowed || recorded(r, "k") != 5 {
		t.Errorf("peek: %+v, %v", d, err)
	}
	requests := []Request{{Rule: group, Key: "k", Cost: 20}, {Rule: r, Key: "k", Cost: 1}}
	if d, err := l.AllowAll(context.Background(), requests...); err != nil || d[0].Allowed || d[1].Allowed || d[1].RetryAfter == 0 || recorded(group, "k") != 0 {
		t.Errorf("all or none: %+v, %v", d, err)
	}
	if d, err := l.AllowAll(context.Background(), requests[0]); err != nil || !d[0].Allowed || recorded(group, "k") != 20 {
		t.Errorf("a group of one: %+v, %v", d, err)
	}
	if d := mustAllow(t, free, "k", 1); !d.Allowed || d.Tier != limit.TierRedis {
		t.Errorf("under Allow Redis decides: %+v", d)
	}

	other(false)
	redistest.Eventually(t, "Redis decides alone", func() bool { return l.State() == Healthy })
	if d := mustAllow(t, r, "k", 4); !d.Allowed || d.Tier != limit.TierRedis || d.Remaining != 0 {
		t.Errorf("%+v", d)
	}
	redistest.Eventually(t, "all changes are told", func() bool { return len(told.all()) == 3 })
	if seen := told.all(); !slices.Equal(seen, []State{Outage, Settling, Healthy}) {
		t.Errorf("%v", seen)
	}
}

// A fleet waits for instances that do not come back only until their membership ends, and for no instance longer
// than a window.
func TestIncidentsEnd(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := newLimiterOn(t, server.Client(t), redistest.Prefix())
	short := newRule(t, l, "short", limit.Per(10, time.Second))
	newRule(t, l, "long", limit.PerHour(10))
	other := another(t, l)
	other(true)
	redistest.Eventually(t, "there are two", func() bool { return l.FleetSize() == 2 })
	l.shard.Breaker.ForceOpen(errors.New("lost"))
	redistest.Eventually(t, "Redis is back", func() bool { return l.State() == Settling })
	redistest.Eventually(t, "a window has passed for the short one", func() bool { return !l.shard.Settling(short.inOutage) })
	if l.State() != Settling {
		t.Errorf("state %v", l.State())
	}
	if err := server.Client(t).FlushAll(context.Background()).Err(); err != nil { // the other has left the fleet
		t.Fatal(err)
	}
	if fleet := l.shard.Outage().Fleet; fleet != 2 {
		t.Errorf("a fleet of %d", fleet)
	}
}

// Units that were granted without Redis, and refunded before it was back, are not charged.
func TestRefundInAnOutageIsNotCharged(t *testing.T) {
	t.Parallel()
	server, prefix := redistest.Start(t), redistest.Prefix()
	l := newLimiterOn(t, server.Client(t), prefix, Deadline(5*time.Second))
	r := newRule(t, l, "r", limit.PerHour(10))
	loseRedis(server, l)
	d := mustAllow(t, r, "k", 6)
	mustRefund(t, r, "k", &d, 4)
	if units, keys := l.ledger.Waiting(); units != 2 || keys != 1 {
		t.Errorf("%d units of %d keys wait", units, keys)
	}
	// A group that is denied as a whole is not charged either.
	for range 2 {
		if d, err := l.AllowAll(context.Background(), Request{Rule: r, Key: "a", Cost: 1}, Request{Rule: r, Key: "k", Cost: 9}); err != nil || d[0].Allowed {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	server.Restart()
	redistest.Eventually(t, "Redis decides alone", func() bool { return l.State() != Outage && !l.shard.Owes() })
	if k, a := peekFrom(t, server, prefix, r, "k"), peekFrom(t, server, prefix, r, "a"); k != 8 || a != 10 {
		t.Errorf("%d and %d remain, want 8 and 10", k, a)
	}
}

// Units that are granted without Redis while the breaker is closed, after a single time-out, are charged like any
// others.
func TestSingleTimeoutsAreCharged(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) { // a heartbeat that is late changes the state
		l := newLimiterOn(t, bubble.Client(t), redistest.Prefix())
		r := newRule(t, l, "r", limit.PerHour(10))
		without(r, "k", 3, lua.Take, breaker.ErrOpen)
		redistest.Eventually(t, "it is charged", func() bool { return !l.shard.Owes() })
		if d := peek(t, r, "k"); d.Remaining != 7 || l.State() != Healthy {
			t.Errorf("%d remain, state %v", d.Remaining, l.State())
		}
	})
}

// WithOutage gives call sites different policies for the same limit.
func TestWithOutage(t *testing.T) {
	server := redistest.Start(t)
	l := newLimiterOn(t, server.Client(t), redistest.Prefix())
	r := newRule(t, l, "r", limit.PerHour(3))
	strict, err := r.WithOutage(Deny)
	if err != nil {
		t.Fatal(err)
	}
	loseRedis(server, l)
	if d := mustAllow(t, strict, "k", 1); d.Allowed {
		t.Errorf("%+v", d)
	}
	if d := mustAllow(t, r, "k", 1); !d.Allowed || !d.Degraded() {
		t.Errorf("%+v", d)
	}
	if _, err := r.WithOutage(Deny + 1); !errors.Is(err, limit.ErrInvalidOption) {
		t.Errorf("%v", err)
	}
}

// Law 11: an instance that starts while others have not yet charged what they granted in an outage settles with
// them. Otherwise Redis would grant these units a second time.
func TestLaw11WhoJoinsAFleetThatSettlesDoesSo(t *testing.T) {
	t.Parallel()
	server, prefix := redistest.Start(t), redistest.Prefix()
	before := newLimiterOn(t, server.Client(t), prefix)
	other := another(t, before)
	other(true)
	l := newLimiterOn(t, server.Client(t), prefix, RememberDenials(0))
	if l.State() != Settling || l.FleetSize() != 3 {
		t.Errorf("%v in a fleet of %d", l.State(), l.FleetSize())
	}
	r := newRule(t, l, "r", limit.PerHour(12))
	if d, err := r.AllowUpTo(context.Background(), "k", 12); err != nil || d.Granted != 4 || d.Tier != limit.TierRedis {
		t.Errorf("of a share of 4 units: %+v, %v", d, err)
	}
	other(false)
	redistest.Eventually(t, "Redis decides alone", func() bool { other(false); return l.State() == Healthy })
	if d, err := r.AllowUpTo(context.Background(), "k", 12); err != nil || d.Granted != 8 {
		t.Errorf("the rest: %+v, %v", d, err)
	}
}
