//go:build unix

package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

// redises are the Redis servers that a limiter asks through proxies: one node, or the masters of a Cluster.
type redises struct {
	servers []*redistest.Server
	proxies *proxies
	client  func(t *testing.T, pool int) redis.UniversalClient
}

// speed is a condition that makes Redis fast or slow for a while.
type speed struct {
	what string
	at   int // index of the server, if only one is concerned
	slow time.Duration
	span time.Duration
}

func newSpeed(random *rand.Rand) speed {
	return speed{
		what: pick(random, "fast", "fast", "far away", "far away", "busy", "narrow", "silent", "reset", "busy", "paused", "stopped"),
		at:   random.IntN(3),
		slow: time.Duration(1+random.IntN(pick(random, 5, 30, 100))) * time.Millisecond,
		span: time.Duration(50+random.IntN(350)) * time.Millisecond,
	}
}

func (s speed) String() string {
	return fmt.Sprintf("%s for %v (%v, server %d)", s.what, s.span, s.slow, s.at)
}

// during makes Redis as fast or slow as s says, for that long, and then fast again.
func (r *redises) during(t *testing.T, s speed) {
	t.Helper()
	server := r.servers[s.at%len(r.servers)]
	end := time.Now().Add(s.span)
	switch ms := int(s.slow.Milliseconds()); s.what {
	case "far away":
		r.proxies.begin(fault{"latency", "downstream", map[string]int{"latency": ms, "jitter": ms / 2}})
	case "narrow":
		r.proxies.begin(fault{"bandwidth", "upstream", map[string]int{"rate": 1 + ms}}) // kB a second
	case "silent":
		r.proxies.begin(fault{"timeout", "downstream", map[string]int{"timeout": 0}})
	case "reset":
		r.proxies.begin(fault{"reset_peer", "downstream", map[string]int{"timeout": 0}})
	case "busy": // with other clients' scripts, each of which takes about s.slow
		others := server.Client(t)
		for time.Now().Before(end) {
			const spin, turnsPerMs = "for i = 1, tonumber(ARGV[1]) do end return 1", 100_000
			if err := others.Eval(context.Background(), spin, nil, ms*turnsPerMs).Err(); err != nil {
				t.Error(err)
			}
		}
	case "paused":
		if err := server.Client(t).Do(context.Background(), "CLIENT", "PAUSE", s.span.Milliseconds()).Err(); err != nil {
			t.Error(err)
		}
	case "stopped":
		server.Pause()
		defer server.Resume()
	}
	time.Sleep(time.Until(end)) // callers meanwhile check the effects
	r.proxies.end()
}
