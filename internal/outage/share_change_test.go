package outage

import (
	"testing"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/remote"
)

// grantsOf returns how many single units a rule grants to a key without Redis, at most the given number.
func (l *testShards) grantsOf(r *Rule, key remote.UserKey, most int) (granted int64) {
	for range most {
		granted += without(l.first, request(r, key, 1), l.Now(), errLost).Granted
	}
	return granted
}

// newFourWithAllow returns an instance of a fleet of four, a rule of 100 units an hour, and the same rule under the policy
// Allow.
func newFourWithAllow(t *testing.T) (l *testShards, s *Shard, r, allow *Rule) {
	t.Helper()
	l = newShards(t, 1)
	r, allow = newRule(t, "r", limit.PerHour(100), limit.SlidingLog()), newRule(t, "r", limit.PerHour(100), limit.SlidingLog())
	allow.Policy = Allow
	l.masters[0].heard.Size = 4
	l.heartbeat(t, l.first)
	return l, l.first, r, allow
}

// Law 11: what other call sites let through under the policy Allow in an outage, or the rule itself before its policy
// was changed, does not raise the share.
func TestLaw11WhatAllowLetsThroughRaisesNoShare(t *testing.T) {
	for name, known := range map[string]bool{"known to Redis": true, "new": false} {
		t.Run(name, func(t *testing.T) {
			l, s, r, allow := newFourWithAllow(t)
			want := int64(25)
			if known {
				s.Learned(request(r, "k", 20), &remote.Reply{Granted: 20, Remaining: 80})
				want = 40 // 20, and a quarter of the 80 that were free
			}
			s.Breaker.ForceOpen(errLost)
			l.grantsOf(allow, "k", 1000)
			l.grantsOf(r, "k", 1) // if nothing has yet, this fixes the share
			l.now.Add(int64(2 * r.Limit.Window()))
			if got := l.grantsOf(r, "k", 1000); got != want {
				t.Errorf("%d granted in a later window, want the share of %d", got, want)
			}
		})
	}
}

// Law 11: each of more instances than a limit has units may grant one unit. If the limit is raised in the outage,
// that unit is no larger part of it than that of any other instance.
func TestLaw11ALimitBelowTheFleetIsRaisedInAnOutage(t *testing.T) {
	l := newShards(t, 1)
	s, m := l.first, l.masters[0]
	small, large := newRule(t, "r", limit.PerHour(2), limit.SlidingLog()), newRule(t, "r", limit.PerHour(1000), limit.SlidingLog())
	m.heard.Size = 50
	l.heartbeat(t, s)
	s.Breaker.ForceOpen(errLost)
	if got := l.grantsOf(small, "k", 10); got != 1 {
		t.Errorf("%d granted under a limit of 2, want 1", got)
	}
	l.now.Add(int64(2 * small.Limit.Window()))
	if got := l.grantsOf(large, "k", 1000); got < 19 || got > 20 {
		t.Errorf("%d granted under a limit of 1000, want a fiftieth", got)
	}
}

// Law 11: the same holds in the next outage, although Redis has charged in between what Allow let through. Otherwise,
// each instance that let through that much would have the whole limit as its share.
func TestLaw11WhatAllowLetThroughRaisesNoLaterShare(t *testing.T) {
	for name, c := range map[string]struct {
		through      int64 // beyond the share
		askedBetween bool
	}{
		"some": {20, true}, "some, not asked": {20, false}, "more than the limit": {1000, true}, "more than the limit, not asked": {1000, false},
	} {
		t.Run(name, func(t *testing.T) {
			l, s, r, allow := newFourWithAllow(t)
			s.Learned(request(r, "k", 20), &remote.Reply{Granted: 20, Remaining: 80})
			s.Breaker.ForceOpen(errLost)
			without(s, request(allow, "k", 20+c.through), l.Now(), errLost)
			l.closeBreaker(t, s)
			for s.Owes() {
				s.chargeSome()
			}
			endNow(s)
			if c.askedBetween {
				s.Learned(request(r, "k", 1), &remote.Reply{Remaining: 0}) // others have let through as much
			}
			l.now.Add(int64(minute))
			s.Breaker.ForceOpen(errLost)
			l.grantsOf(r, "k", 1) // fixes the share
			l.now.Add(int64(2 * r.Limit.Window()))
			if got := l.grantsOf(r, "k", 1000); got != 40 {
				t.Errorf("%d granted in a later window, want the share of 40", got)
			}
		})
	}
}

// Law 11: once an answer comes after what was let through has left the window, shares are made of answers again.
func TestLaw11SharesFollowTrafficAfterAllow(t *testing.T) {
	l, s, r, allow := newFourWithAllow(t)
	s.Breaker.ForceOpen(errLost)
	without(s, request(allow, "k", 60), l.Now(), errLost)
	l.closeBreaker(t, s)
	endNow(s)
	l.now.Add(int64(2 * r.Limit.Window()))
	s.Learned(request(r, "k", 60), &remote.Reply{Granted: 60, Remaining: 40})
	s.Breaker.ForceOpen(errLost)
	if got := l.grantsOf(r, "k", 1000); got != 10 {
		t.Errorf("%d granted beside the 60, want a quarter of the 40 that were free", got)
	}
}
