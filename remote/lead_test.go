package remote

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

func waitingCall(rule *Rule, left int64) *call {
	return waiting(callOf(context.Background(), Entry{Key: redistest.Prefix() + "lead", Rule: rule, Cost: 1}), left)
}

// waiting makes c a call that waits and has the given time left, in µs.
func waiting(c *call, left int64) *call {
	c.began = localTime()
	c.deadline, c.mayLead = c.began+left, true
	return c
}

func queueOf(calls ...*call) (q queue) {
	for _, c := range calls {
		q.add(c)
	}
	return q
}

// After a failed trip, only the call that arrived last is sent. If Redis hangs, the other calls have not been sent
// and cannot have been charged.
func TestOneCallGoesAheadAfterAFailure(t *testing.T) {
	b, _ := newBatcher(t, redistest.Shared(t).Client(t))
	rule := newRule(t, limit.PerHour(10), limit.GCRA())
	for failed, want := range map[bool]int{false: 3, true: 1} {
		first, second, last := waitingCall(rule, 1000*ms), waitingCall(rule, 1000*ms), waitingCall(rule, 1000*ms)
		b.mu.Lock()
		b.queue, b.failed, b.inFlight = queueOf(first, second, last), failed, 1
		b.mu.Unlock()
		trip := b.load(nil, localTime())
		if len(trip.calls) != want || failed && (trip.calls[0] != last || b.queue.len() != 2 || first.state.Load() != callWaiting) {
			t.Errorf("after a failure %v: %d of 3 calls sent, %d wait", failed, len(trip.calls), b.queue.len())
		}
		b.mu.Lock()
		b.remove(trip)
		b.queue, b.failed, b.inFlight = queue{}, false, 0
		b.mu.Unlock()
	}
}

// After a failure, a large call goes ahead even if the last trip carried one, too. Other calls would go first otherwise.
// A single call does not count as one of several.
func TestWhoGoesAheadAfterAFailure(t *testing.T) {
	b, _ := newBatcher(t, redistest.Shared(t).Client(t))
	rule := newRule(t, limit.PerHour(10), limit.GCRA())
	small, large := waitingCall(rule, 1000*ms), waitingGroup(rule, largeGroup)
	for _, c := range []struct {
		calls  []*call
		sent   int
		single bool
	}{{[]*call{small, large}, 1, true}, {[]*call{waitingCall(rule, 1000*ms)}, 1, false}, {nil, 0, false}} {
		b.mu.Lock()
		b.queue, b.failed, b.inFlight, b.slow, b.last = queueOf(c.calls...), true, 1, true, cargo{large: true}
		b.mu.Unlock()
		trip := b.load(nil, localTime())
		if len(trip.calls) != c.sent || trip.single != c.single || c.single && trip.calls[0] != large {
			t.Errorf("of %d calls, %d are sent; one of several: %v", len(c.calls), len(trip.calls), trip.single)
		}
		b.mu.Lock()
		b.remove(trip)
		b.queue, b.failed, b.inFlight, b.slow, b.last = queue{}, false, 0, false, cargo{}
		b.mu.Unlock()
	}
}

// A trip whose calls have all ended before it was sent is not in flight, and not full.
func TestATripWithoutCallsIsNotInFlight(t *testing.T) {
	b, _ := newBatcher(t, redistest.Shared(t).Client(t))
	rule := newRule(t, limit.PerHour(10), limit.GCRA())
	for _, waiting := range []int{0, 1, 2} {
		b.mu.Lock()
		b.inFlight = 1
		for range waiting {
			c := waitingCall(rule, 1000*ms)
			c.claim()
			b.queue.add(c)
		}
		b.mu.Unlock()
		trip := b.load(nil, localTime())
		if len(trip.calls) != 0 || len(b.trips) != 0 || trip.full {
			t.Errorf("%d calls that have ended: %d are sent, %d trips are in flight, the trip is full: %v", waiting, len(trip.calls), len(b.trips), trip.full)
		}
		b.mu.Lock()
		b.inFlight, b.trips = 0, nil
		b.mu.Unlock()
	}
}

// No further trip starts while one has been in flight for long. There are two exceptions: this process itself
// delays trips by as much, so that Redis may have answered long ago; or Redis is that far away.
func TestFurtherTripsWaitForRedisNotForThisProcess(t *testing.T) {
	b, _ := newBatcher(t, redistest.Shared(t).Client(t), deadline(80*time.Second)) // a busy machine may stand still for a moment
	rule := newRule(t, limit.PerHour(10), limit.GCRA())
	calls := make([]*call, fullBatch)
	for i := range calls {
		calls[i] = waitingCall(rule, 80_000*ms)
	}
	const long = 80_000 * ms / slowPart // µs
	for _, c := range []struct {
		inFlightFor, delay, way int64
		may                     bool
	}{
		{long / 2, 0, 0, true}, {2 * long, 0, 0, false}, {2 * long, long / 2, 0, false}, {2 * long, 2 * long, 0, true}, {5 * long, 2 * long, 0, false},
		{2 * long, 0, 3 * long / 2, true}, {4 * long, 0, 3 * long / 2, false}, {2 * long, 0, long / 2, false},
	} {
		b.mu.Lock()
		b.distance = distance{}
		b.distance.repeated(0, c.way, knownAfter)
		trip := &trip{flight: flight{ends: localTime() - c.inFlightFor + 80_000*ms, entries: 1}}
		b.queue, b.inFlight, b.delay, b.trips, b.last = queueOf(calls...), 1, c.delay, append(b.trips, trip), cargo{unmerged: 1, sent: 1}
		if may := b.mayStart(); may != c.may {
			t.Errorf("a trip has been in flight for %d µs, the last one was delayed by %d, and the round trip takes %d: another may start: %v",
				c.inFlightFor, c.delay, c.way, may)
		}
		b.remove(trip)
		b.queue, b.inFlight = queue{}, 0
		b.mu.Unlock()
	}
}

// Redis counts as slow if a trip takes it more than an eighth of the deadline, but not if Redis is that far away.
func TestAFarRedisIsNotSlow(t *testing.T) {
	for _, c := range []struct {
		way, took int64 // ms
		slow      bool
	}{{1, 12, false}, {1, 14, true}, {20, 25, false}, {20, 35, false}, {20, 45, true}} {
		b, _ := newBatcher(t, redistest.Shared(t).Client(t), deadline(100*time.Millisecond))
		b.distance.repeated(0, c.way*ms, knownAfter)
		ended := &trip{flight: flight{done: func(error) {}}}
		b.tripEnded(ended, localTime(), c.took*ms, c.took*ms, nil)
		if b.slow != c.slow {
			t.Errorf("round trips take %d ms, and one takes %d: slow: %v", c.way, c.took, b.slow)
		}
	}
}

// While other processes use Redis, a further trip pays from fullBatch entries on. For the only process of a fleet
// it pays from fullAlone entries on, if it carries as many as the trip in flight. Calls for few keys are few
// entries.
func TestTheOnlyProcessOfAFleetMakesASecondTripSooner(t *testing.T) {
	b, _ := newBatcher(t, redistest.Shared(t).Client(t))
	rule := newRule(t, limit.PerHour(10), limit.GCRA())
	same := cargo{calls: fullAlone, unmerged: fullAlone, sent: fullAlone}
	for _, c := range []struct {
		what     string
		alone    bool
		inFlight int
		entries  int // in the trip in flight; 0 while it is being loaded, -1 before that
		waiting  int
		last     cargo
		may      bool
		share    int // the share of 2*waiting
	}{
		{"alone", true, 1, fullAlone, fullAlone, same, true, 3 * fullAlone / 2},
		{"too few", true, 1, fullAlone, fullAlone - 1, same, false, (3*fullAlone - 2) / 2},
		{"fewer than in flight", true, 1, fullAlone + 4, fullAlone + 3, same, false, (3*fullAlone + 10) / 2},
		{"as many as in flight", true, 1, fullAlone + 4, fullAlone + 4, same, true, (3*fullAlone + 12) / 2},
		{"the trip takes all who wait", true, 1, 0, fullAlone, same, false, fullAlone},
		{"the trip waits for all who were answered", true, 1, -1, fullAlone, same, false, fullAlone},
		{"a third one", true, 2, fullAlone, fullAlone, same, false, 3 * fullAlone / 2},
		{"more than a trip carries", true, 1, fullAlone, 200, same, true, 128},
		{"calls of few keys", true, 1, 1, fullBatch, cargo{calls: fullBatch, unmerged: fullBatch, sent: 1}, false, fullBatch},
		{"not known how many keys", true, 1, 1, fullAlone, cargo{calls: 1, unmerged: 1, sent: 1}, false, fullAlone},
		{"calls of several entries", true, 1, fullAlone, fullAlone, cargo{calls: 1, unmerged: fullAlone, sent: fullAlone}, true, 3 * fullAlone / 2},
		{"few", true, 1, 1, fullAlone/2 - 1, same, false, fullBatch},
		{"others", false, 1, fullAlone, fullBatch - 1, same, false, (2*fullBatch - 2 + fullAlone + 1) / 2},
		{"others, few", false, 1, fullAlone, fullAlone, same, false, fullBatch},
		{"others, enough", false, 1, fullAlone, fullBatch, same, true, (2*fullBatch + fullAlone + 1) / 2},
	} {
		calls := make([]*call, c.waiting)
		for i := range calls {
			calls[i] = waitingCall(rule, 1000*ms)
		}
		b.mu.Lock()
		b.alone = c.alone
		b.queue, b.inFlight, b.trips, b.last = queueOf(calls...), c.inFlight, nil, c.last
		if c.entries >= 0 {
			b.trips = []*trip{{flight: flight{entries: c.entries}}}
		}
		if may, share := b.mayStart(), b.entriesPerTrip(2*c.waiting); may != c.may || share != c.share {
			t.Errorf("%s: another trip may start: %v, and carries up to %d; want %v, %d", c.what, may, share, c.may, c.share)
		}
		b.slow = true
		full := c.alone && c.waiting >= b.opt.MaxBatch
		if may, share := b.mayStart(), b.entriesPerTrip(2*c.waiting); may != full || share != b.opt.MaxBatch {
			t.Errorf("%s, and Redis is slow: another trip may start: %v, and carries up to %d", c.what, may, share)
		}
		b.slow = false
		b.queue, b.inFlight, b.trips = queue{}, 0, nil
		b.mu.Unlock()
	}
}

// While Redis is slow, the only process of a fleet has two trips in flight if the second one is full. It starts no trip
// while Redis takes longer for the first one than expected, or after a failure.
func TestTheOnlyProcessOfAFleetHasTwoTripsOnASlowRedis(t *testing.T) {
	const most, deadline = 10, 50 * time.Millisecond
	rule := newRule(t, limit.PerHour(10), limit.GCRA())
	synctest.Test(t, func(t *testing.T) {
		b := NewBatcher(nil, Options{Deadline: deadline, MaxBatch: most, InFlight: 4}, Hooks{})
		for what, c := range map[string]struct {
			others, failed bool
			inFlight       int
			waiting, keys  int // of calls
			took           time.Duration
			may            bool
		}{
			"a full trip":                {inFlight: 1, waiting: most, keys: most, took: 20 * time.Millisecond, may: true},
			"less than a full trip":      {inFlight: 1, waiting: most - 1, keys: most - 1},
			"calls of few keys":          {inFlight: 1, waiting: 2*most - 1, keys: most - 1},
			"more calls of few keys":     {inFlight: 1, waiting: 2 * most, keys: most, may: true},
			"a third trip":               {inFlight: 2, waiting: most, keys: most},
			"other processes":            {others: true, inFlight: 1, waiting: most, keys: most},
			"the last trip failed":       {failed: true, inFlight: 1, waiting: most, keys: most},
			"the first takes very long":  {inFlight: 1, waiting: most, keys: most, took: 20*time.Millisecond + time.Microsecond},
			"not in flight, and few":     {waiting: 1, keys: 1, may: true},
			"failed, and none in flight": {failed: true, waiting: 1, keys: 1, may: true},
		} {
			b.slow, b.alone, b.failed, b.inFlight, b.took.next = true, !c.others, c.failed, c.inFlight, 20*ms
			b.trips = []*trip{{flight: flight{entries: most, ends: localTime() + deadline.Microseconds() - c.took.Microseconds()}}}
			b.last = cargo{calls: c.waiting, unmerged: c.waiting, sent: c.keys}
			b.queue = queue{}
			for range c.waiting {
				b.queue.add(waitingCall(rule, 1000*ms))
			}
			if may := b.mayStart(); may != c.may {
				t.Errorf("%s: another trip may start: %v", what, may)
			}
		}
		b.queue, b.trips = queue{}, nil
		b.Close()
	})
}

// The only process of a fleet has two trips in flight, which must not end at the same time. So the leader of a trip with
// many entries waits only for as many as the last one carried.
func TestTheOnlyProcessOfAFleetDoesNotMergeItsTrips(t *testing.T) {
	const most = 128
	b := NewBatcher(nil, Options{MaxBatch: most}, Hooks{})
	t.Cleanup(b.Close)
	for _, c := range []struct {
		what   string
		alone  bool
		last   cargo
		enough int
	}{
		{"many entries", true, cargo{unmerged: mergeUpTo, sent: mergeUpTo}, mergeUpTo},
		{"calls that share entries", true, cargo{unmerged: 5 * mergeUpTo, sent: mergeUpTo}, 5 * mergeUpTo},
		{"few entries", true, cargo{unmerged: mergeUpTo - 1, sent: mergeUpTo - 1}, most},
		{"few entries of many calls", true, cargo{unmerged: 10 * mergeUpTo, sent: mergeUpTo / 2}, 20 * most},
		{"other processes", false, cargo{unmerged: mergeUpTo, sent: mergeUpTo}, most},
		{"no trip yet", true, cargo{}, 0},
	} {
		b.mu.Lock()
		b.alone, b.last = c.alone, c.last
		if enough := b.enough(); enough != c.enough {
			t.Errorf("%s: a trip starts once %d calls wait, want %d", c.what, enough, c.enough)
		}
		b.mu.Unlock()
	}
}

// A few callers of the only process of a fleet each make a trip of their own, if Go may use several processors, unless
// their calls would share an entry, or more callers waited at a time within the last second.
func TestFewCallersOfTheOnlyProcessDoNotWaitForATrip(t *testing.T) {
	counted, slots := newRule(t, limit.PerHour(10), limit.GCRA()), newSlotsRule(t, 10, time.Minute, 1)
	for what, c := range map[string]struct {
		alone, parallel bool
		keys            []uint64 // of the calls that come one after another
		asking          int64
		others          int // further entries of each call
		inFlight        int
		may             bool
	}{
		"few":               {true, true, []uint64{1, 2}, fewCallers, 0, 1, true},
		"one":               {true, true, []uint64{1}, 2, 0, 1, true},
		"many trips":        {true, true, []uint64{1, 2}, fewCallers, 0, 3, true},
		"too many trips":    {true, true, []uint64{1, 2}, fewCallers, 0, 4, false},
		"many":              {true, true, []uint64{1, 2}, fewCallers + 1, 0, 1, false},
		"not alone":         {false, true, []uint64{1, 2}, 2, 0, 1, false},
		"one processor":     {true, false, []uint64{1, 2}, 2, 0, 1, false},
		"one key":           {true, true, []uint64{1, 2, 2}, 3, 0, 1, false},
		"slots of one key":  {true, true, []uint64{1, 2, 2}, 3, 0, 1, true}, // one acquires what another releases
		"the key is back":   {true, true, []uint64{1, 2, 1}, 3, 0, 1, true},
		"groups":            {true, true, []uint64{1, 2}, fewCallers, 2, 1, true},
		"many groups":       {true, true, []uint64{1, 2}, fewCallers + 1, 2, 1, false},
		"groups of one key": {true, true, []uint64{1, 1}, 2, 2, 1, true},
	} {
		b, _ := newBatcher(t, redistest.Shared(t).Client(t)) // at most 4 trips in flight
		b.mu.Lock()
		b.alone, b.parallel, b.inFlight, b.last = c.alone, c.parallel, b.opt.InFlight, cargo{calls: 1, unmerged: 1, sent: 1}
		b.mu.Unlock()
		b.waiting.Store(c.asking)
		rule := counted
		if strings.HasPrefix(what, "slots") {
			rule = slots
		}
		for _, key := range c.keys {
			e := Entry{Key: redistest.Prefix() + "lead", Hash: key, Rule: rule, Cost: 1}
			one := callOf(t.Context(), e)
			if c.others > 0 {
				one = new(callPool).group(t.Context(), slices.Repeat([]Entry{e}, 1+c.others))
			}
			if lead, _, err := b.enqueue(waiting(one, 60_000*ms)); lead || err != nil {
				t.Fatalf("%s: with all trips in flight, one more starts: %v, %v", what, lead, err)
			}
		}
		b.mu.Lock()
		b.inFlight = c.inFlight
		if may := b.mayStart(); may != c.may {
			t.Errorf("%s: a trip may start: %v", what, may)
		}
		b.queue, b.inFlight = queue{}, 0
		b.mu.Unlock()
		b.waiting.Store(0)
	}
}

// Callers are few only if there have been no more for a second: a server whose requests arrive at random often has few
// of them at a time.
func TestCallersAreFewAfterASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBatcher(nil, Options{Deadline: 10 * time.Second, InFlight: 4, Queue: 100}, Hooks{})
		rule := newRule(t, limit.PerHour(10), limit.GCRA())
		hash := uint64(0)
		ask := func(asking int64) (apart bool) {
			b.waiting.Store(asking)
			hash++
			c := callOf(t.Context(), Entry{Key: "lead", Hash: hash, Rule: rule, Cost: 1})
			if _, _, err := b.enqueue(waiting(c, 10_000*ms)); err != nil {
				t.Fatal(err)
			}
			return b.ownTripsPay()
		}
		b.alone, b.parallel, b.inFlight = true, true, b.opt.InFlight
		for _, c := range []struct {
			after  time.Duration
			asking int64
			few    bool
		}{
			{0, fewCallers, true},
			{0, fewCallers + 1, false},
			{fewFor * time.Microsecond, 1, false},
			{time.Microsecond, 1, true},
			{0, fewCallers + 1, false},
			{fewFor / 2 * time.Microsecond, fewCallers + 1, false},
			{fewFor * time.Microsecond, fewCallers, false},
			{time.Microsecond, fewCallers, true},
		} {
			time.Sleep(c.after)
			if few := ask(c.asking); few != c.few {
				t.Errorf("after %v, with %d callers: callers are few: %v", c.after, c.asking, few)
			}
		}
		b.Close()
	})
}

// Of the callers that wait and may lead, the one that came last leads the next trip. If none may, a separate goroutine
// does.
func TestWhoCameLastLeads(t *testing.T) {
	b, _ := newBatcher(t, redistest.Shared(t).Client(t))
	rule := newRule(t, limit.PerHour(10), limit.GCRA())
	for _, c := range []struct {
		mayLead [3]bool
		leads   int // -1: none of them
	}{
		{[3]bool{true, true, true}, 2}, {[3]bool{true, true, false}, 1}, {[3]bool{true, false, false}, 0}, {[3]bool{}, -1},
	} {
		var calls []*call
		for _, may := range c.mayLead {
			one := waitingCall(rule, 10_000*ms)
			one.mayLead = may
			calls = append(calls, one)
		}
		b.mu.Lock()
		b.queue = queueOf(calls...)
		b.startNext()
		for i, one := range calls {
			if one.elected != (i == c.leads) {
				t.Errorf("%v: caller %d leads: %v", c.mayLead, i, one.elected)
			}
		}
		b.mu.Unlock()
		var callers sync.WaitGroup
		for _, one := range calls {
			callers.Go(func() {
				if err := b.await(one); err != nil {
					t.Error(err)
				}
			})
		}
		callers.Wait()
		awaitState(t, b, 0, 0)
	}
}

// Once a trip is loaded, another starts for the calls that it left behind, if they are worth one.
func TestCallsThatAreLeftBehindGetATripAtOnce(t *testing.T) {
	b, _ := newBatcher(t, redistest.Shared(t).Client(t))
	rule := newRule(t, limit.PerHour(10), limit.GCRA())
	var calls []*call
	for range 2 * fullBatch {
		calls = append(calls, waitingCall(rule, 10_000*ms))
	}
	b.mu.Lock()
	b.queue, b.inFlight, b.last = queueOf(calls...), 1, cargo{calls: 1, unmerged: 1, sent: 1}
	b.mu.Unlock()
	loaded := b.load(nil, localTime())
	last := calls[len(calls)-1]
	if len(loaded.calls) != fullBatch || b.inFlight != 2 || !last.elected {
		t.Fatalf("a trip carries %d of %d calls, and with it %d are in flight", len(loaded.calls), len(calls), b.inFlight)
	}
	if err := b.await(last); err != nil {
		t.Error(err)
	}
	b.mu.Lock()
	b.remove(loaded)
	b.inFlight = 0
	b.mu.Unlock()
}

// A caller that leads at once waits for other callers only if the last trip carried several.
func TestASingleCallerWaitsForNoOthers(t *testing.T) {
	rule := newRule(t, limit.PerHour(10), limit.GCRA())
	for calls, waits := range map[int]bool{0: false, 1: false, 2: true} {
		b, _ := newBatcher(t, redistest.Shared(t).Client(t))
		b.last = cargo{calls: calls, unmerged: calls, sent: calls}
		c := waitingCall(rule, 10_000*ms)
		lead, others, err := b.enqueue(c)
		if !lead || others != waits || err != nil {
			t.Errorf("after a trip of %d: it leads %v, and waits for others %v, %v", calls, lead, others, err)
		}
		b.lead(c, others)
		if <-c.done; c.err != nil {
			t.Error(c.err)
		}
	}
}

// A caller with little time left does not make the trip itself, because the other calls on the trip would have no
// more time than it has. Its own call is answered nevertheless.
func TestLeadersHaveTime(t *testing.T) {
	b, _ := newBatcher(t, redistest.Shared(t).Client(t)) // 10 s
	rule := newRule(t, limit.PerHour(10), limit.GCRA())
	key := redistest.Prefix() + "k"
	for i, left := range []int64{9000 * ms, 4000 * ms, 9000 * ms, 4000 * ms} { // the trip is used again
		c := waitingCall(rule, left)
		c.entry.Key = key
		if lead, _, err := b.enqueue(c); !lead || err != nil {
			t.Fatalf("it does not lead: %v", err)
		}
		b.lead(c, false)
		if <-c.done; c.err != nil || c.mayLead != (left == 9000*ms) || c.replies[0].Remaining != int64(9-i) {
			t.Errorf("%d ms left: led %v, error %v, %+v; want one charge for each call", left/ms, c.mayLead, c.err, c.replies)
		}
		awaitState(t, b, 0, 0)
	}
}
