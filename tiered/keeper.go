package tiered

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/breaker"
	"github.com/tierlimit/tierlimit/remote"
)

// How often an instance is heard of in Redis, after what silence it no longer
// counts, how often a lost Redis is tried again, and how long New waits for it.
const (
	beatEvery   = time.Second
	fleetTTL    = 5 * time.Second
	probeEvery  = 250 * time.Millisecond
	startWithin = time.Second
)

// meetRedis makes the first contact: it joins the fleet and measures the way. It
// returns an error only for what waiting would not mend.
func (l *Limiter) meetRedis() error {
	l.checkClient()
	took, err := l.firstBeat()
	if err == nil {
		if took > l.config.deadline/2 {
			l.log.warn("slow", "Redis is so far away that decisions will often miss their deadline; set a longer one (tiered.Deadline)",
				"round_trip", took, "deadline", l.config.deadline)
		}
		return nil
	}
	if misconfigured := remote.Misconfigured(err); misconfigured != nil {
		return misconfigured
	}
	l.log.warn("start", "Redis cannot be reached; starting in outage mode", "error", err, "assumed_fleet_size", l.fleet.Size())
	l.breaker.ForceOpen(err)
	return nil
}

// firstBeat joins the fleet and returns the shortest of three round trips. A
// client that does not honour deadlines must not hold up New, so it is left
// behind when the time is over; Close waits for it.
func (l *Limiter) firstBeat() (took time.Duration, err error) {
	type result struct {
		took time.Duration
		err  error
	}
	done := make(chan result, 1)
	l.background.Go(func() {
		ctx, cancel := context.WithTimeout(l.ctx, startWithin)
		defer cancel()
		best := startWithin
		err := l.beatOnce(ctx) // connects, which takes longer
		for i := 0; i < 3 && err == nil; i++ {
			started := time.Now()
			err = l.beatOnce(ctx)
			best = min(best, time.Since(started))
		}
		done <- result{best, err}
	})
	select {
	case r := <-done:
		return r.took, r.err
	case <-time.After(startWithin + 100*time.Millisecond):
		return 0, fmt.Errorf("%w (%v)", remote.ErrNoAnswer, startWithin)
	}
}

// checkClient logs settings of the client that will hurt in an outage.
func (l *Limiter) checkClient() {
	var honoursContext bool
	var readTimeout time.Duration
	switch c := l.client.(type) {
	case *redis.Client:
		honoursContext, readTimeout = c.Options().ContextTimeoutEnabled, c.Options().ReadTimeout
	case *redis.ClusterClient:
		honoursContext, readTimeout = c.Options().ContextTimeoutEnabled, c.Options().ReadTimeout
	default:
		return
	}
	if !honoursContext && (readTimeout <= 0 || readTimeout > 4*l.config.deadline) {
		l.log.info("client", "the Redis client waits much longer than the limiter: when Redis hangs, connections stay tied up; "+
			"set ContextTimeoutEnabled, or a ReadTimeout near the deadline, or use tiered.Open",
			"read_timeout", readTimeout, "deadline", l.config.deadline)
	}
}

// keep runs in the background: it renews the membership in the fleet, and while
// Redis is lost, probes for it.
func (l *Limiter) keep() {
	timer := time.NewTimer(beatEvery)
	defer timer.Stop()
	var last time.Time // of beats
	for {
		select {
		case <-l.ctx.Done():
			return
		case to := <-l.changes:
			l.tell(to)
		case <-l.suspicions:
			if time.Since(last) >= probeEvery && l.breaker.Closed() {
				last = time.Now()
				l.beat()
			}
			continue
		case <-timer.C:
			last = time.Now()
			if l.breaker.Closed() {
				l.beat()
			} else {
				l.probe()
			}
		}
		timer.Reset(l.untilNextBeat())
	}
}

// untilNextBeat is spread out, so that a fleet does not beat in step.
func (l *Limiter) untilNextBeat() time.Duration {
	every := beatEvery
	if !l.breaker.Closed() || l.settlesSoon() {
		every = probeEvery
	}
	return every + time.Duration(rand.Int64N(int64(every)/10))
}

func (l *Limiter) beat() {
	done, err := l.breaker.Begin()
	if err != nil {
		return
	}
	err = l.beatWithin(l.config.deadline)
	done(err)
}

// probe asks whether Redis is back. The first beat may have to connect, which
// takes several round trips; only the second must keep the deadline, or else
// decisions would not keep it either and the breaker would open again at once.
func (l *Limiter) probe() {
	err := l.breaker.Probe(func() error {
		if err := l.beatWithin(startWithin); err != nil {
			return err
		}
		return l.beatWithin(l.config.deadline)
	})
	if err != nil && !errors.Is(err, breaker.ErrOpen) && l.ctx.Err() == nil {
		l.log.warn("lost", "Redis is still out of reach", "error", err)
	}
}

// beatOnce renews the membership, and acts on what it learns.
func (l *Limiter) beatOnce(ctx context.Context) error {
	owes, sent := l.owes(), l.now()
	heard, err := l.fleet.Beat(ctx, owes)
	if err != nil {
		return err
	}
	if remembers, since := l.memory.remembers(heard, sent); !remembers {
		l.forgot(since)
	}
	if owes {
		l.wakeCharger()
	} else {
		l.settle(heard)
	}
	return nil
}

func (l *Limiter) beatWithin(d time.Duration) error {
	ctx, cancel := context.WithTimeout(l.ctx, d)
	defer cancel()
	started := time.Now()
	if err := l.beatOnce(ctx); err != nil {
		return err
	}
	if took := time.Since(started); took > d {
		return fmt.Errorf("%w (%v): it took %v", remote.ErrNoAnswer, d, took)
	}
	return nil
}

// breakerChanged runs under the breaker's lock, so it only takes note and passes the
// news on.
func (l *Limiter) breakerChanged(from, to breaker.State) {
	switch {
	case from == breaker.Closed && to == breaker.Open:
		l.metrics.opened.Inc()
		l.lost(l.now(), l.born)
		l.changed(Outage)
	case to == breaker.Closed:
		l.back(l.now())
		l.changed(Settling)
		l.wakeCharger()
	}
}

// changed tells the keeper of a change of state. It never waits.
func (l *Limiter) changed(to State) {
	select {
	case l.changes <- to:
	default:
	}
}

// tell logs a change of state, and tells who wants to know.
func (l *Limiter) tell(to State) {
	switch to {
	case Outage:
		l.log.warn("outage", "Redis counts as lost; decisions are made by the rules' outage policies", "fleet_size", l.fleet.Size())
	case Settling:
		l.log.info("settling", "Redis is back; until it knows of all grants, it and the instances' own records must both agree", "fleet_size", l.fleet.Size())
	case Healthy:
		l.log.info("healthy", "Redis decides again", "fleet_size", l.fleet.Size())
	}
	if l.config.onStateChange != nil {
		l.config.onStateChange(to)
	}
}
