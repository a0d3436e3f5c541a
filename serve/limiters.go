package serve

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tierlimit/tierlimit/embedded"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/promlimit"
	"github.com/tierlimit/tierlimit/tiered"
)

// openLimiters opens a limiter on Redis, or on each of the two if limits per second have a Redis of their own.
func (s *Server) openLimiters(registry *prometheus.Registry) error {
	if !s.settings.PerSecond {
		var err error
		s.limiters.All, err = s.open("REDIS_", &s.settings.Redis, registry)
		return err
	}
	named := func(name string) prometheus.Registerer {
		return prometheus.WrapRegistererWith(prometheus.Labels{"redis": name}, registry)
	}
	// At the same time, because a Redis that hangs takes two seconds.
	var all, perSecond error
	var opening sync.WaitGroup
	opening.Go(func() { s.limiters.All, all = s.open("REDIS_", &s.settings.Redis, named("others")) })
	opening.Go(func() {
		s.limiters.PerSecond, perSecond = s.open("REDIS_PERSECOND_", &s.settings.PerSecondRedis, named("per_second"))
	})
	opening.Wait()
	return errors.Join(all, perSecond)
}

// embeddedDeadline is the least deadline for the embedded Redis, which is slow.
const embeddedDeadline = 250 * time.Millisecond

// deadline returns the deadline of the limiter on this Redis.
func (s *Settings) deadline(where *RedisSettings) time.Duration {
	if where.URL == "" {
		return max(s.Deadline, embeddedDeadline)
	}
	return s.Deadline
}

// within returns how long all trips of one request may take together.
func (s *Settings) within() time.Duration {
	if !s.PerSecond {
		return s.deadline(&s.Redis)
	}
	return max(s.deadline(&s.Redis), s.deadline(&s.PerSecondRedis))
}

func (s *Server) open(prefix string, where *RedisSettings, registry prometheus.Registerer) (*tiered.Limiter, error) {
	part := "redis " + prefix
	limiter, err := s.openRedis(prefix, where,
		tiered.Prefix(s.settings.Prefix), tiered.Deadline(s.settings.deadline(where)),
		tiered.Logger(s.log),
		tiered.OnStateChange(func(state tiered.State) {
			if s.settings.HealthyWithRedis {
				s.health.set(part, state != tiered.Outage)
			}
		}))
	if err != nil {
		return nil, err
	}
	registry.MustRegister(promlimit.NewCollector(limiter))
	if s.settings.HealthyWithRedis {
		s.health.begin(part, !limiter.Degraded())
	}
	return limiter, nil
}

// openRedis opens a limiter on a Redis, or on one inside the process if the settings name none.
func (s *Server) openRedis(prefix string, where *RedisSettings, options ...tiered.Option) (*tiered.Limiter, error) {
	if where.URL == "" {
		s.log.Warn("REDIS_URL is not set: counts are kept in this process, and are lost when it ends")
		return embedded.Open(options...)
	}
	o, err := where.options(prefix)
	if err != nil {
		return nil, err
	}
	s.log.Info("Redis", "at", where.shown())
	// Without either setting, the library assumes a fleet (law 11): an instance that starts while Redis is lost must
	// not grant the whole of every limit.
	if s.settings.FleetSize > 0 {
		options = append(options, tiered.FleetSize(s.settings.FleetSize))
	}
	if s.settings.FleetFile != "" {
		options = append(options, tiered.FleetFile(s.settings.FleetFile))
	}
	limiter, err := tiered.Open(o, options...)
	if err != nil {
		variables := prefix + "URL"
		if errors.Is(err, limit.ErrTLS) {
			variables += ", REDIS_TLS_CACERT, REDIS_TLS_CLIENT_CERT, REDIS_TLS_SKIP_HOSTNAME_VERIFICATION"
		} else if errors.Is(err, limit.ErrAuth) {
			variables += ", " + prefix + "AUTH"
			if where.Type == "sentinel" {
				variables += ", " + prefix + "SENTINEL_AUTH"
			}
		}
		return nil, fmt.Errorf("%s (%s): %w", variables, where.shown(), err)
	}
	return limiter, nil
}

// chargeRest waits until Redis has been charged for what was granted without it, for at most within. If Redis is
// still lost after lostWithin, it stops waiting.
func chargeRest(limiter *tiered.Limiter, within time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	lost := time.AfterFunc(lostWithin, func() {
		if limiter.Degraded() {
			cancel()
		}
	})
	defer lost.Stop()
	_ = limiter.ChargeRest(ctx) // Close logs how much was not charged
}

// lostWithin is how long a service that ends waits for a lost Redis if units have yet to be charged there.
const lostWithin = 3 * time.Second
