package redistest

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

type startedLimiter struct{ degraded, closed bool }

func (l *startedLimiter) Degraded() bool { return l.degraded }
func (l *startedLimiter) Close() error   { l.closed = true; return nil }

// A limiter that has not reached its server is made again only if the server answers, and not for ever.
func TestReached(t *testing.T) {
	defer func(a, b time.Duration) { waitsFor, memberFor = a, b }(waitsFor, memberFor)
	memberFor = 0
	gone := Start(t)
	lost := gone.Client(t)
	gone.Kill()
	for name, tc := range map[string]struct {
		client       redis.UniversalClient
		waitsFor     time.Duration
		failed, want int // how many limiters do not reach the server, and how many are made
	}{
		"the first one":      {Shared(t).Client(t), 0, 0, 1},
		"the third one":      {Shared(t).Client(t), 0, 2, 3},
		"none":               {Shared(t).Client(t), 0, 100, 4},
		"it does not wait":   {Shared(t).Client(t), time.Hour, 100, 1},
		"there is no server": {lost, 0, 100, 1},
		"a Cluster":          {SharedCluster(t).Client(t), 0, 1, 2},
	} {
		waitsFor = tc.waitsFor
		var made []*startedLimiter
		l := Reached(t, tc.client, func() (*startedLimiter, error) {
			made = append(made, &startedLimiter{degraded: len(made) < tc.failed})
			return made[len(made)-1], nil
		})
		if len(made) != tc.want || l != made[len(made)-1] || l.closed {
			t.Errorf("%s: %d were made, want %d; the last was returned: %v, closed: %v", name, len(made), tc.want, l == made[len(made)-1], l.closed)
		}
		for _, before := range made[:len(made)-1] {
			if !before.closed {
				t.Errorf("%s: a limiter was not closed", name)
			}
		}
	}
}
