package outage

import (
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/breaker"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// What decisions without Redis say, by policy and operation. A peek charges nothing under any policy.
func TestWhatDecisionsWithoutRedisSay(t *testing.T) {
	for what, c := range map[string]struct {
		policy    Policy
		operation int
		cost      int64
		allowed   bool
		granted   int64
		remaining int64
		owes      bool
	}{
		"denied":                           {Deny, lua.Take, 1, false, 0, 0, false},
		"peeked at, to be denied":          {Deny, lua.Peek, 1, false, 0, 0, false},
		"let through":                      {Allow, lua.Take, 7, true, 7, 93, true},
		"let through, more than the limit": {Allow, lua.Take, 107, true, 107, 0, true},
		"peeked at, to be let through":     {Allow, lua.Peek, 7, true, 0, 100, false},
		"of the share":                     {Approximate, lua.Take, 4, true, 4, 6, true},
		"up to the share":                  {Approximate, lua.TakeUpTo, 14, true, 10, 0, true},
		"the whole share":                  {Approximate, lua.Take, 10, true, 10, 0, true},
		"more than the share":              {Approximate, lua.Take, 11, false, 0, 10, false},
		"peeked at, the whole share":       {Approximate, lua.Peek, 10, true, 0, 10, false},
		"peeked at, more than the share":   {Approximate, lua.Peek, 11, false, 0, 10, false},
	} {
		l := newShards(t, 1)
		s := l.first
		l.masters[0].heard.Size = 10
		l.heartbeat(t, s)
		s.Breaker.ForceOpen(errLost)
		r := newRule(t, "r", limit.PerHour(100), limit.SlidingLog()) // a share of 10
		r.Policy = c.policy
		q := request(r, "k", c.cost)
		q.Operation = c.operation
		d := without(s, q, l.Now(), breaker.ErrOpen)
		if d.Allowed != c.allowed || d.Granted != c.granted || d.Remaining != c.remaining || d.ResetAfter != time.Hour || d.Tier != limit.TierFallback {
			t.Errorf("%s: %+v", what, d)
		}
		if wait := map[Policy]time.Duration{Deny: ProbeEvery, Approximate: RetryWithin}[c.policy]; !c.allowed && d.RetryAfter != wait {
			t.Errorf("%s: try again in %v, want %v", what, d.RetryAfter, wait)
		}
		if s.Owes() != c.owes {
			t.Errorf("%s: Redis is to be charged: %v", what, s.Owes())
		}
	}
}

// A decision that Redis did not answer in time counts as made under overload, if Redis answers others. It is charged in
// Redis later only if Redis cannot have charged it (law 3), and so is one of a denied group that is taken back.
func TestLaw3WhatRedisMayHaveChargedIsNotChargedLater(t *testing.T) {
	for what, c := range map[string]struct {
		err  error
		tier limit.Tier
		owes bool
	}{
		"no answer":       {remote.ErrNoAnswer, limit.TierOverload, false},
		"no room to wait": {remote.ErrNoRoom, limit.TierOverload, true},
		"lost":            {breaker.ErrOpen, limit.TierFallback, true},
	} {
		l := newShards(t, 1)
		s := l.first
		l.heartbeat(t, s)
		r := newRule(t, "r", limit.PerHour(100), limit.SlidingLog())
		q := request(r, "k", 1)
		without(s, request(r, "k", 3), l.Now(), remote.ErrNoRoom) // is to be charged in any case
		waiting := func() int64 {
			units, _ := l.Ledger.Waiting()
			return units
		}
		d := without(s, q, l.Now(), c.err)
		if units := waiting(); !d.Allowed || units != 3+map[bool]int64{true: 1}[c.owes] {
			t.Errorf("%s: %+v, Redis is to be charged %d units", what, d, units)
		}
		a := q.account()
		if s.Undo(q, c.err); waiting() != 3 || l.Ledger.Used(&a, l.Now()) != 3 {
			t.Errorf("%s: taken back, Redis is to be charged %d units of %d, want 3", what, waiting(), l.Ledger.Used(&a, l.Now()))
		}
		if tier := s.TierWithout(c.err); d.Tier != tier || tier != c.tier {
			t.Errorf("%s: tier %v and %v, want %v", what, d.Tier, tier, c.tier)
		}
		s.silence.Store(&silence{})
		if tier := s.TierWithout(c.err); tier != limit.TierFallback {
			t.Errorf("%s: tier %v while Redis answers nobody", what, tier)
		}
	}
}
