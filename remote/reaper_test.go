package remote

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlimit/tierlimit/limit"
)

// The reaper's next round comes when the first call or trip is due, but not before a pause is over. A call whose context
// may be canceled is due every 25 ms.
func TestTheReapersNextRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rule := newRule(t, limit.PerHour(10), limit.GCRA())
		cancellable, cancel := context.WithCancel(t.Context())
		defer cancel()
		plain := context.Background()
		type waits struct {
			ctx  context.Context
			left int64 // ms
		}
		for what, c := range map[string]struct {
			calls []waits
			trip  int64 // ms left of a trip that the caller of its only call makes; 0: there is none
			next  int64 // ms; 0: no round
		}{
			"nothing":                  {nil, 0, 0},
			"the first is due first":   {[]waits{{plain, 50}, {plain, 70}}, 0, 50},
			"the last is due first":    {[]waits{{plain, 70}, {plain, 50}}, 0, 50},
			"a context":                {[]waits{{plain, 70}, {cancellable, 70}}, 0, 25},
			"a context, and less time": {[]waits{{cancellable, 10}}, 0, 10},
			"a trip":                   {nil, 50, 50},
			"a trip, and more time":    {[]waits{{plain, 70}}, 50, 50},
			"a trip, and less time":    {[]waits{{plain, 30}}, 50, 30},
			"a long round":             {[]waits{{standsStill{plain, 4 * time.Millisecond}, 10}}, 0, 4 + reapPart*4 + 1},
			"a short round":            {[]waits{{standsStill{plain, time.Millisecond}, 3}}, 0, 1 + reapPart + 1},
			"it is due again at once":  {[]waits{{standsStill{plain, 0}, 0}, {plain, 1}}, 0, 1},
		} {
			b := NewBatcher(nil, Options{Deadline: time.Minute}, Hooks{})
			now := localTime()
			for _, w := range c.calls {
				b.queue.add(waiting(callOf(w.ctx, Entry{Key: "k", Rule: rule, Cost: 1}), w.left*ms))
			}
			if c.trip > 0 {
				leader := waitingCall(rule, c.trip*ms)
				leader.state.Store(callSent)
				b.trips = []*trip{{calls: []*call{leader}, flight: flight{leader: leader, ends: leader.deadline}}}
			}
			b.reap()
			want := now + c.next*ms
			if c.next == 0 {
				want = 0
			}
			if b.reapAt != want {
				t.Errorf("%s: the next round comes after %d µs, want %d ms", what, b.reapAt-now, c.next)
			}
			b.Close()
		}
		b := NewBatcher(nil, Options{Deadline: time.Minute}, Hooks{})
		now := localTime()
		for _, c := range []struct{ at, next int64 }{{50, 50}, {70, 50}, {30, 30}} { // ms
			if b.setReaper(now + c.at*ms); b.reapAt != now+c.next*ms {
				t.Errorf("%d ms until a call is due, which was just set: the next round comes after %d µs, want %d ms", c.at, b.reapAt-now, c.next)
			}
		}
		b.Close()
	})
}

// At the end of a trip's time the reaper ends the trip's command, and the calls that have no time left. It gives up the
// trip unless a caller makes it, who notices that the command has ended. Before that, the reaper ends calls whose context
// is canceled, but not the call of the caller that makes the trip: that caller gets its decision.
func TestWhatTheReaperEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rule := newRule(t, limit.PerHour(10), limit.GCRA())
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		for what, c := range map[string]struct {
			ctx            context.Context // of the trip's two calls
			left, callLeft int64           // µs, of the trip and of its calls
			led            bool            // by the caller of the first call
			ends           [2]error        // of the calls
			command        bool            // has ended
			givenUp        bool
		}{
			"time left":            {t.Context(), 1, 1, true, [2]error{}, false, false},
			"canceled":             {canceled, 1, 1, true, [2]error{nil, context.Canceled}, false, false},
			"canceled, not led":    {canceled, 1, 1, false, [2]error{context.Canceled, context.Canceled}, false, false},
			"the end":              {t.Context(), 0, 0, true, [2]error{ErrNoAnswer, ErrNoAnswer}, true, false},
			"the end of the trip":  {t.Context(), 0, 1, true, [2]error{}, true, false},
			"the end of the calls": {t.Context(), 1, 0, true, [2]error{ErrNoAnswer, ErrNoAnswer}, false, false},
			"the end, not led":     {t.Context(), 0, 0, false, [2]error{ErrNoAnswer, ErrNoAnswer}, true, true},
			"noticed late":         {t.Context(), -40_000 * ms, 0, false, [2]error{ErrNoAnswer, ErrNoAnswer}, true, true},
		} {
			told, took := errors.New("nothing"), time.Duration(-1)
			b := NewBatcher(nil, Options{Deadline: time.Minute}, Hooks{Trip: func(_ int, of time.Duration, _ error) { took = of }})
			one := &trip{flight: flight{ends: localTime() + c.left, ctx: newTripContext(localTime()), done: func(err error) { told = err }}}
			for range c.ends {
				sent := waiting(callOf(c.ctx, Entry{Key: "k", Rule: rule, Cost: 1}), c.callLeft)
				sent.state.Store(callSent)
				one.calls = append(one.calls, sent)
			}
			if c.led {
				one.leader = one.calls[0]
			}
			b.trips, b.inFlight = []*trip{one}, 1
			b.reap()
			for i, want := range c.ends {
				if got := one.calls[i]; !errors.Is(got.err, want) || got.claimed() != (want != nil) || want != nil && !MayHaveRun(got.err) {
					t.Errorf("%s: call %d ends with %v, want %v", what, i, got.err, want)
				}
			}
			if ended, givenUp := one.ctx.ended.Load(), !slices.Contains(b.trips, one); ended != c.command || givenUp != c.givenUp {
				t.Errorf("%s: the command has ended: %v, the trip is given up: %v", what, ended, givenUp)
			}
			b.trips = nil
			b.Close()
			// A time-out that is noticed late shows that this process was busy, see failureOfRedis.
			if blamed := told != nil; c.givenUp && (took != b.opt.Deadline-microseconds(c.left) || blamed != (c.left == 0)) {
				t.Errorf("%s: the trip took %v, and the breaker was told of %v", what, took, told)
			}
		}
	})
}

// A round that comes late, because this process stood still, ends nothing if a trip is in flight: its answer may have come.
// The next round does, also if it is late again.
func TestALateRoundEndsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const part = 50 * ms / lateRoundPart
		rule := newRule(t, limit.PerHour(10), limit.GCRA())
		for what, c := range map[string]struct {
			late, again int64 // µs, of the two rounds
			idle        bool  // no trip is in flight
			spares      bool
		}{
			"in time":     {part, 0, false, false},
			"late":        {part + 1, 0, false, true},
			"late twice":  {80 * ms, 80 * ms, false, true},
			"not on trip": {80 * ms, 0, true, false},
		} {
			b := NewBatcher(nil, Options{Deadline: 50 * time.Millisecond}, Hooks{Trip: func(int, time.Duration, error) {}})
			sent := waiting(callOf(t.Context(), Entry{Key: "k", Rule: rule, Cost: 1}), -c.late)
			if c.idle {
				b.queue.add(sent)
			} else {
				sent.state.Store(callSent)
				b.trips = []*trip{{calls: []*call{sent}, flight: flight{leader: sent, ends: sent.deadline, ctx: newTripContext(sent.deadline)}}}
			}
			b.reapAt = sent.deadline
			b.reap()
			if sent.claimed() == c.spares {
				t.Errorf("%s: the call has ended in the first round: %v", what, sent.claimed())
			}
			if want := localTime() + part; c.spares {
				if b.reapAt != want {
					t.Errorf("%s: the next round comes after %d µs, want %d", what, b.reapAt-localTime(), part)
				}
				b.reapAt -= c.again
				b.reap()
				if !errors.Is(sent.err, ErrNoAnswer) || b.spared {
					t.Errorf("%s: the call ends with %v in the second round", what, sent.err)
				}
			}
			b.trips = nil
			b.Close()
		}
	})
}

// Law 6: a call whose time ends during a round has missed its deadline, although its context, which leaves it the whole
// deadline, has ended too.
func TestLaw6ADeadlineThatPassesDuringARound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rule := newRule(t, limit.PerHour(10), limit.GCRA())
		ends, cancel := context.WithTimeout(t.Context(), 2*time.Millisecond)
		defer cancel()
		b := NewBatcher(nil, Options{Deadline: time.Minute}, Hooks{})
		queued := func(ctx context.Context, left int64) *call {
			return waiting(callOf(ctx, Entry{Key: "k", Rule: rule, Cost: 1}), left)
		}
		first, missed, hurried := queued(standsStill{t.Context(), 4 * time.Millisecond}, 70*ms), queued(ends, 2*ms), queued(ends, 2*ms)
		hurried.hurried = true
		b.queue = queueOf(first, missed, hurried)
		b.reap()
		for c, want := range map[*call]error{missed: ErrNoAnswer, hurried: context.DeadlineExceeded, first: nil} {
			if !errors.Is(c.err, want) || IsCallers(c.err) != (c == hurried) {
				t.Errorf("%v, want %v", c.err, want)
			}
		}
		b.Close()
	})
}

// A round is not late if it was already due when the timer was set, for a caller that comes back from a trip.
func TestARoundThatIsDueAtOnceIsNotLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rule := newRule(t, limit.PerHour(10), limit.GCRA())
		b := NewBatcher(nil, Options{Deadline: 50 * time.Millisecond}, Hooks{Trip: func(int, time.Duration, error) {}})
		over, led := waitingCall(rule, 0), waitingCall(rule, 20*ms)
		led.ctx, led.began = t.Context(), localTime()-40*ms // its context was to be checked 15 ms ago
		for _, c := range []*call{over, led} {
			c.state.Store(callSent)
		}
		b.trips = []*trip{{calls: []*call{over, led}, flight: flight{ends: localTime() + 20*ms, ctx: newTripContext(localTime())}}}
		b.mu.Lock()
		b.setReaper(led.due(led.began))
		b.mu.Unlock()
		b.reap()
		if !over.claimed() || led.claimed() {
			t.Errorf("the call whose time is over has ended: %v, the other one: %v", over.claimed(), led.claimed())
		}
		b.trips = nil
		b.Close()
	})
}

// Law 3: a call that ends in the queue, by its deadline or with its caller's context, has charged nothing.
func TestLaw3CallsThatEndInTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rule := newRule(t, limit.PerHour(10), limit.GCRA())
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		b := NewBatcher(nil, Options{Deadline: time.Minute}, Hooks{})
		queued := func(ctx context.Context, left int64) *call {
			return waiting(callOf(ctx, Entry{Key: "k", Rule: rule, Cost: 1}), left)
		}
		late, hurried, gone := queued(t.Context(), 0), queued(t.Context(), 0), queued(canceled, 1)
		hurried.hurried = true
		b.queue = queueOf(late, hurried, gone)
		b.reap()
		for c, want := range map[*call]error{late: ErrNoAnswer, hurried: context.DeadlineExceeded, gone: context.Canceled} {
			if !errors.Is(c.err, want) || IsCallers(c.err) != (c != late) || MayHaveRun(c.err) {
				t.Errorf("%v, want %v", c.err, want)
			}
		}
		b.Close()
	})
}
