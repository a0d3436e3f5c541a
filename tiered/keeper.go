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
		err := l.fleet.Beat(ctx) // connects, which takes longer
		for i := 0; i < 3 && err == nil; i++ {
			started := time.Now()
			err = l.fleet.Beat(ctx)
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
	for {
		select {
		case <-l.ctx.Done():
			return
		case c := <-l.changes:
			l.logChange(c)
		case <-timer.C:
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
	if !l.breaker.Closed() {
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

func (l *Limiter) beatWithin(d time.Duration) error {
	ctx, cancel := context.WithTimeout(l.ctx, d)
	defer cancel()
	started := time.Now()
	if err := l.fleet.Beat(ctx); err != nil {
		return err
	}
	if took := time.Since(started); took > d {
		return fmt.Errorf("%w (%v): it took %v", remote.ErrNoAnswer, d, took)
	}
	return nil
}

// change is a change of the breaker's state.
type change struct{ from, to breaker.State }

// breakerChanged runs under the breaker's lock, so it only counts and passes the
// news on.
func (l *Limiter) breakerChanged(from, to breaker.State) {
	if from == breaker.Closed {
		l.metrics.opened.Inc()
	}
	select {
	case l.changes <- change{from, to}:
	default:
	}
}

func (l *Limiter) logChange(c change) {
	switch {
	case c.from == breaker.Closed && c.to == breaker.Open:
		l.log.warn("open", "Redis counts as lost; decisions are made by the rules' outage policies", "fleet_size", l.fleet.Size())
	case c.to == breaker.Closed:
		l.log.info("closed", "Redis is back; it decides again", "fleet_size", l.fleet.Size())
	}
}
