package tiered

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
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
	if l.cluster != nil {
		if err := l.meetCluster(); err != nil {
			return l.shard.notMet(err)
		}
	}
	return l.everyShard((*shard).meet)
}

func (s *shard) meet() error {
	l := s.limiter
	took, err := s.firstBeat()
	if err == nil {
		if took > l.config.deadline/2 {
			s.warn("slow", "Redis is so far away that decisions will often miss their deadline; set a longer one (tiered.Deadline)",
				"round_trip", took, "deadline", l.config.deadline)
		}
		s.checkNode()
		return nil
	}
	return s.notMet(err)
}

// notMet starts without Redis, unless waiting would not mend that.
func (s *shard) notMet(err error) error {
	if misconfigured := remote.Misconfigured(err); misconfigured != nil {
		return misconfigured
	}
	about := []any{"error", err, "assumed_fleet_size", s.fleetSize(), "cold_start", s.limiter.config.coldStart}
	if hint := tlsHint(s.limiter.client, err); hint != "" {
		about = append(about, "hint", hint)
	}
	s.warn("start", "Redis cannot be reached; starting in outage mode: rules of policy Approximate grant this instance's share of their limits, all of it once cold_start has passed", about...)
	s.failed(err)
	s.breaker.ForceOpen(err)
	return nil
}

// tlsHint says what may be wrong where only one side speaks TLS. No error tells: a server
// that does hangs up, and one that does not waits for more.
func tlsHint(client redis.UniversalClient, err error) string {
	var config *tls.Config
	switch client := client.(type) {
	case *redis.Client:
		config = client.Options().TLSConfig
	case *redis.ClusterClient:
		config = client.Options().TLSConfig
	}
	switch {
	case config == nil && errors.Is(err, io.EOF):
		return "the server hangs up without an answer: it may speak TLS only (set TLSConfig, or use rediss:// in the URL)"
	case config != nil && remote.KindOf(err) == remote.Timeout:
		return "the server does not answer: it may not speak TLS, which the client is set to (TLSConfig)"
	}
	return ""
}

// firstBeat joins the fleet and returns the shortest of three round trips.
func (s *shard) firstBeat() (took time.Duration, err error) {
	best := startWithin
	err = s.limiter.withinStart(func(ctx context.Context) error {
		err := s.beatOnce(ctx) // connects, which takes longer
		for i := 0; i < 3 && err == nil; i++ {
			started := time.Now()
			err = s.beatOnce(ctx)
			best = min(best, time.Since(started))
		}
		return err
	})
	if err != nil {
		return 0, err // best may still be written
	}
	return best, nil
}

// withinStart does something for as long as New may wait. A client that does not honour
// deadlines must not hold up New, so it is left behind when the time is over; Close waits
// for it.
func (l *Limiter) withinStart(f func(context.Context) error) error {
	done := make(chan error, 1)
	l.background.Go(func() {
		ctx, cancel := context.WithTimeout(l.ctx, startWithin)
		defer cancel()
		done <- f(ctx)
	})
	select {
	case err := <-done:
		return err
	case <-time.After(startWithin + 100*time.Millisecond):
		return fmt.Errorf("%w (%v)", remote.ErrNoAnswer, startWithin)
	}
}

// checkClient logs settings of the client that will hurt in an outage.
func (l *Limiter) checkClient() {
	c, ok := l.client.(*redis.ClusterClient)
	if !ok {
		return // see keepingDeadlines
	}
	if o := c.Options(); !o.ContextTimeoutEnabled && (o.ReadTimeout <= 0 || o.ReadTimeout > 4*l.config.deadline) {
		l.log.info("client", "the Redis client waits much longer than the limiter: when Redis hangs, connections stay tied up; "+
			"set ContextTimeoutEnabled, or a ReadTimeout near the deadline, or use tiered.Open",
			"read_timeout", o.ReadTimeout, "deadline", l.config.deadline)
	}
}

// keep runs in the background: it renews the membership in the fleet, and while
// Redis is lost, probes for it.
func (s *shard) keep() {
	timer := time.NewTimer(beatEvery)
	defer timer.Stop()
	var last time.Time // of beats
	for {
		select {
		case <-s.limiter.ctx.Done():
			return
		case <-s.suspicions:
			if time.Since(last) >= probeEvery && s.breaker.Closed() {
				last = time.Now()
				s.beat()
			}
			continue
		case <-timer.C:
			last = time.Now()
			s.limiter.script.Rest()
			switch {
			case !s.inUse():
			case s.breaker.Closed():
				s.beat()
			default:
				s.probe()
			}
		}
		timer.Reset(s.untilNextBeat())
	}
}

// untilNextBeat is spread out, so that a fleet does not beat in step.
func (s *shard) untilNextBeat() time.Duration {
	every := beatEvery
	if !s.breaker.Closed() || s.settlesSoon() {
		every = probeEvery
	}
	return every + time.Duration(rand.Int64N(int64(every)/10))
}

func (s *shard) beat() {
	done, err := s.breaker.Begin()
	if err != nil {
		return
	}
	if err = s.beatWithin(s.limiter.config.deadline); err != nil {
		s.failed(err)
	}
	done(err)
}

// probe asks whether Redis is back. The first beat may have to connect, which
// takes several round trips; only the second must keep the deadline, or else
// decisions would not keep it either and the breaker would open again at once.
func (s *shard) probe() {
	err := s.breaker.Probe(func() error {
		if err := s.beatWithin(startWithin); err != nil {
			return err
		}
		return s.beatWithin(s.limiter.config.deadline)
	})
	if err != nil && !errors.Is(err, breaker.ErrOpen) && s.limiter.ctx.Err() == nil {
		s.failed(err)
		s.warn("lost", "Redis is still out of reach", "error", err)
	}
}

// beatOnce renews the membership, and acts on what it learns.
func (s *shard) beatOnce(ctx context.Context) error {
	owes, sent := s.owes(), s.limiter.now()
	heard, err := s.fleet.Beat(ctx, owes)
	if remote.IsMoving(err) {
		return nil // Redis is there; it will say more when the slot has moved
	}
	if err != nil {
		return err
	}
	s.silence.Store(nil)
	if file := s.limiter.fleetFile; file != nil {
		s.limiter.background.Go(func() { file.heard(heard.Size, time.Now()) }) // which may be slow
	}
	if remembers, since := s.memory.remembers(heard, sent); !remembers {
		s.forgot(since)
	}
	if owes {
		s.wakeCharger()
	} else {
		s.settle(heard)
	}
	return nil
}

func (s *shard) beatWithin(d time.Duration) error {
	ctx, cancel := context.WithTimeout(s.limiter.ctx, d)
	defer cancel()
	started := time.Now()
	if err := s.beatOnce(ctx); err != nil {
		return err
	}
	if took := time.Since(started); took > d {
		return fmt.Errorf("%w (%v): it took %v", remote.ErrNoAnswer, d, took)
	}
	return nil
}

// breakerChanged runs under the breaker's lock, so it only takes note and passes the
// news on.
func (s *shard) breakerChanged(from, to breaker.State) {
	switch {
	case from == breaker.Closed && to == breaker.Open:
		s.limiter.metrics.opened.Inc()
		s.lost(s.limiter.now(), s.limiter.born)
		s.limiter.wakeSlots()
		s.changed(Outage)
	case to == breaker.Closed:
		s.back(s.limiter.now())
		s.limiter.wakeSlots()
		s.changed(Settling)
		s.wakeCharger()
	}
}
