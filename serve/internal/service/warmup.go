package service

import (
	"context"
	"time"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/serve/internal/config"
	"github.com/tierlimit/tierlimit/tiered"
)

// warmUps is how many times at most Redis is asked before the first request.
const warmUps = 20

// WarmUp makes Redis load the script, which takes longer than a decision. Without it, the first requests would miss
// their deadlines and be decided without Redis.
func (s *Service) WarmUp() {
	for _, limiter := range []*tiered.Limiter{s.limiters.All, s.limiters.PerSecond} {
		if limiter == nil || limiter.Degraded() {
			continue
		}
		window := time.Hour
		if limiter == s.limiters.PerSecond {
			window = time.Second
		}
		rule, err := s.limiters.rule(window.String(), 1, window, &config.Terms{}, false)
		for range warmUps {
			if err != nil {
				break
			}
			var d limit.Decision
			if d, err = rule.Peek(context.Background(), "warm up", 1); d.Tier == limit.TierRedis {
				break
			}
		}
	}
}
