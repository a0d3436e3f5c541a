package outage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tierlimit/tierlimit/breaker"
	"github.com/tierlimit/tierlimit/remote"
)

// How often an instance sends heartbeats, how long after its last one it no longer counts, how often a lost
// Redis is probed, and how long a new limiter waits for Redis.
const (
	heartbeatEvery = time.Second
	FleetTTL       = 5 * time.Second
	ProbeEvery     = 250 * time.Millisecond
	StartWithin    = time.Second
)

// Join makes the first contact: it joins the fleet and measures the round trip. It returns only errors
// that waiting does not solve.
func (l *Shards) Join() error {
	if l.onCluster() { // until the Cluster can be reached, all of its keys have one shard
		masters, err := WithinStart(l, l.Masters)
		if err != nil {
			return l.first.startWithoutRedis(err)
		}
		l.reroute(masters)
	}
	return l.every((*Shard).join)
}

func (s *Shard) join() error {
	took, err := s.firstHeartbeat()
	if err != nil {
		return s.startWithoutRedis(err)
	}
	if took > s.all.Deadline/2 {
		s.warn("slow", "Redis is so far away that decisions will often miss their deadline; set a longer one (tiered.Deadline)",
			"round_trip", took, "deadline", s.all.Deadline)
	}
	s.all.Joined(s)
	return nil
}

// startWithoutRedis starts the shard without Redis, unless the error is one that waiting does not solve.
func (s *Shard) startWithoutRedis(err error) error {
	if misconfigured := remote.Misconfigured(err); misconfigured != nil {
		return misconfigured
	}
	about := []any{"error", err, "assumed_fleet_size", s.fleetSize(), "cold_start", s.all.ColdStart.Lasts}
	if hint := s.all.Hint(err); hint != "" {
		about = append(about, "hint", hint)
	}
	s.warn("start", "Redis cannot be reached; starting in outage mode: rules with the policy Approximate grant this instance's share of their limits, and the whole share only after cold_start", about...)
	s.unanswered(err)
	s.Breaker.ForceOpen(err)
	return nil
}

// firstHeartbeat joins the fleet and returns the shortest of up to four round trips, as far as time allows.
func (s *Shard) firstHeartbeat() (best time.Duration, err error) {
	return WithinStart(s.all, func(ctx context.Context) (best time.Duration, err error) {
		if best, _, err = s.heartbeatOnce(ctx); err != nil { // connects, and so takes longer
			return best, err
		}
		for range 3 {
			took, _, err := s.heartbeatOnce(ctx)
			if err != nil {
				break // no time is left, or Redis has just gone, which the next heartbeat notices
			}
			best = min(best, took)
		}
		return best, nil
	})
}

// WithinStart runs f for as long as the start of a limiter may wait, and returns its results. A client that does
// not honor deadlines must not delay the start. So f's goroutine is left behind when the time is over; Close waits for it.
func WithinStart[T any](l *Shards, f func(context.Context) (T, error)) (none T, err error) {
	var result T
	done := make(chan error, 1)
	l.Go(func() {
		ctx, cancel := context.WithTimeout(l.Context, StartWithin)
		defer cancel()
		var err error
		result, err = f(ctx)
		done <- err
	})
	select {
	case err := <-done:
		return result, err
	case <-time.After(StartWithin + 100*time.Millisecond):
		return none, fmt.Errorf("%w (%v)", remote.ErrNoAnswer, StartWithin)
	}
}

// keep runs in the background. It renews the membership in the fleet, and probes Redis while Redis is
// lost.
func (s *Shard) keep() {
	timer := time.NewTimer(heartbeatEvery)
	defer timer.Stop()
	var last time.Time // time of the last heartbeat
	for {
		select {
		case <-s.all.Context.Done():
			return
		case <-s.suspicions:
			if time.Since(last) >= ProbeEvery && s.Breaker.Closed() {
				last = time.Now()
				s.heartbeat()
			}
			continue
		case <-timer.C:
			last = time.Now()
			s.all.BeforeHeartbeat()
			switch {
			case !s.inUse():
			case s.Breaker.Closed():
				s.heartbeat()
			default:
				s.probe()
			}
		}
		timer.Reset(s.untilNextHeartbeat())
	}
}

// probeOfEach times the size of the fleet is the shortest interval between an instance's probes, or
// between its heartbeats while it settles. So a fleet makes at most a thousand of them a second or, if it
// has more instances than that, one per instance.
const probeOfEach = time.Millisecond

// untilNextHeartbeat returns a randomized interval, so that a fleet's heartbeats do not coincide. Probes,
// and heartbeats that may soon end an outage, come more often, but not in a large fleet. There, they
// would delay the decisions of instances that are back, and so open their breakers again.
func (s *Shard) untilNextHeartbeat() time.Duration {
	every := heartbeatEvery
	if !s.Breaker.Closed() || s.settlesSoon() {
		every = min(every, max(ProbeEvery, time.Duration(s.fleetSize())*probeOfEach))
	}
	return every + time.Duration(rand.Int64N(int64(every)/10))
}

func (s *Shard) heartbeat() {
	done, err := s.Breaker.Begin()
	if err != nil {
		return
	}
	took, ofRedis, err := s.heartbeatUpTo(s.all.Deadline)
	// If an answer was read late because this process stood still, Redis is not to blame. If its answers do take so long on
	// their way, trips fail.
	if err == nil {
		err = inTime(min(took, ofRedis), s.all.Deadline)
	}
	if err != nil {
		s.unanswered(err)
	} else if s.failedHeartbeats.Load() == 0 {
		s.beats.Add(1)
	}
	if done(err); err != nil {
		s.heartbeatFailed(err)
	}
}

// heartbeatFailed counts a heartbeat that failed. If several fail in a row while Redis decides, it logs the error.
func (s *Shard) heartbeatFailed(err error) {
	if s.failedHeartbeats.Add(1) >= int32(FleetTTL/heartbeatEvery) && s.Breaker.Closed() {
		s.warn("unheard", "Redis decides, but heartbeats fail: other instances do not count this one, "+
			"and it would not notice if Redis lost data", "error", err)
	}
}

// probe checks whether Redis is back. The first heartbeat may have to connect, which takes several round
// trips; only the second must keep the deadline. Without the second heartbeat, decisions might miss the
// deadline and open the breaker again at once.
func (s *Shard) probe() {
	err := s.Breaker.Probe(func() error {
		if err := s.Heartbeat(StartWithin); err != nil {
			return err
		}
		return s.Heartbeat(s.all.Deadline)
	})
	if err != nil && !errors.Is(err, breaker.ErrOpen) && s.all.Context.Err() == nil {
		s.unanswered(err)
		s.warn("lost", "Redis is still out of reach", "error", err)
	}
}

// heartbeatOnce renews the membership, and acts on the result. It returns how long that took, without the time to find
// out whether any units are owed, which is many milliseconds for millions of keys; and ofRedis, the part of it for which
// this process is not responsible, as far as that is known.
func (s *Shard) heartbeatOnce(ctx context.Context) (took, ofRedis time.Duration, err error) {
	owes, sent, first := s.owesNow(), s.all.Now(), !s.fleet.Heard()
	unsettled := owes && s.isUnsettled() || s.awaitsMembers()
	// Losses are read last. So when an instance reports that it has no debts, it has also reported its
	// losses.
	lost := s.lostRules()
	started := time.Now()
	heard, err := s.fleet.Heartbeat(ctx, unsettled, lost...)
	took = time.Since(started)
	answered := s.all.Now()
	if remote.IsMoving(err) {
		s.heartbeatFailed(err)
		return took, took, nil // Redis answers; later heartbeats will succeed when the slot has moved
	}
	if err != nil {
		return took, took, err
	}
	s.failedHeartbeats.Store(0)
	s.silence.Store(nil)
	if s.all.Size != nil {
		s.all.Size(heard.Size)
	}
	forget := func(since int64) { s.all.Ledger.Forgotten(s.has(), since) }
	_, clock := s.memory.clock(answered)
	if remembers, since := s.memory.remembers(heard, sent, answered, forget); !remembers {
		s.dataLost(since, clock)
	}
	if first && (heard.Unsettled > 0 || len(heard.Lost) > 0) {
		s.settleAnew()
	}
	if owes {
		s.charger.wake.Send()
	}
	if !unsettled {
		s.settle(heard)
	}
	return took, cmp.Or(heard.Took, took), nil
}

// connectPart is how many times its own time limit a heartbeat may take if it has to connect.
const connectPart = 4

// Heartbeat renews the membership in the fleet, and acts on the result. It returns an error if that takes
// longer than d. The heartbeat itself may continue, because it may have to connect, which takes several
// round trips. If the connection were given up at d, the next heartbeat would have to connect again. With
// a distant Redis, no heartbeat would ever be in time.
func (s *Shard) Heartbeat(d time.Duration) error {
	took, _, err := s.heartbeatUpTo(d)
	if err != nil {
		return err
	}
	return inTime(took, d)
}

// heartbeatUpTo is heartbeatOnce for a heartbeat that should take at most d.
func (s *Shard) heartbeatUpTo(d time.Duration) (took, ofRedis time.Duration, err error) {
	ctx, cancel := context.WithTimeout(s.all.Context, max(d, min(connectPart*d, StartWithin)))
	defer cancel()
	return s.heartbeatOnce(ctx)
}

// inTime returns an error if a heartbeat took longer than d.
func inTime(took, d time.Duration) error {
	if took > d {
		return fmt.Errorf("%w (%v): the heartbeat took %v", remote.ErrNoAnswer, d, took)
	}
	return nil
}

// breakerChanged runs under the breaker's lock. So it only records the change and sends signals.
func (s *Shard) breakerChanged(from, to breaker.State) {
	switch {
	case from == breaker.Closed && to == breaker.Open:
		s.all.Counts.Opened.Add(1)
		s.beginOutage(s.all.Now())
	case to == breaker.Closed:
		s.update(func(e *incident) { // from now on it settles
			e.isBack(s.all.Now())
			e.decides = e.back
		})
		s.charger.wake.Send()
	default:
		return
	}
	s.changed()
	s.all.BreakerChanged()
}

// failure is the reason why Redis could not be asked, and the time.
type failure struct {
	at     time.Time
	reason error
}

// Failed records that Redis could not be asked, with the reason.
func (s *Shard) Failed(err error) { s.failure.Store(&failure{time.Now(), s.all.Explain(err)}) }

// unanswered records that a heartbeat or a probe failed. They are counted like trips, because there are no trips while
// the breaker is open, and may be none before it opens.
func (s *Shard) unanswered(err error) {
	s.Failed(err)
	if s.all.HeartbeatFailed != nil && s.all.Context.Err() == nil {
		s.all.HeartbeatFailed(err)
	}
}

// LastFailure returns when Redis last could not be asked, and the error. The error is nil if Redis could
// always be asked.
func (s *Shard) LastFailure() (at time.Time, reason error) {
	if f := s.failure.Load(); f != nil {
		return f.at, f.reason
	}
	return time.Time{}, nil
}
