//go:build unix

package faults

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
	"github.com/tierlimit/tierlimit/tiered"
)

func TestMain(m *testing.M) {
	if task := os.Getenv(workerVariable); task != "" {
		tiered.LogOfRedis(nil) // go-redis's log
		if err := work(task); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
			os.Exit(1)
		}
		return
	}
	zerolog.SetGlobalLevel(zerolog.Disabled) // toxiproxy's log
	redistest.Main(m)
}

// newLimiter returns a limiter that is closed with the test.
func newLimiter(t testing.TB, client redis.UniversalClient, prefix string, options ...tiered.Option) *tiered.Limiter {
	t.Helper()
	options = append([]tiered.Option{tiered.Prefix(prefix), tiered.Logger(slog.New(slog.DiscardHandler)), tiered.LedgerKeys(10_000), tiered.RememberDenials(10_000)}, options...)
	l := redistest.Reached(t, client, func() (*tiered.Limiter, error) { return tiered.New(client, options...) })
	t.Cleanup(func() {
		// Leaving the fleet may fail if a test has broken the way to Redis.
		if err := l.Close(); err != nil {
			t.Logf("Close: %v", err)
		}
	})
	return l
}

// patient is a deadline for limiters whose decisions must come from Redis, in tests that are not about deadlines.
const patient = 10 * time.Second

func newRule(t testing.TB, l *tiered.Limiter, name string, lim limit.Limit, options ...tiered.RuleOption) *tiered.Rule {
	t.Helper()
	r, err := l.Rule(name, lim, options...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// observer asks Redis how much it has counted. A limiter's Peek would also apply its own share while others settle.
type observer struct {
	script *remote.Script
	keys   remote.Keyspace
}

func observe(t testing.TB, client redis.UniversalClient, prefix string) observer {
	t.Helper()
	keys, err := remote.NewKeyspace(prefix)
	if err != nil {
		t.Fatal(err)
	}
	return observer{remote.NewScript(client), keys}
}

// charged returns how many units of a key are charged in Redis, under a rule whose limit gives nothing back during
// a test. Units of holds that have ended are given back first if the rule says so.
func (o observer) charged(t testing.TB, r *tiered.Rule, key string) int64 {
	t.Helper()
	rule, err := remote.NewRule(r.Limit(), r.Algorithm())
	if err != nil {
		t.Fatal(err)
	}
	if r.UnsettledPolicy() == tiered.GiveBack {
		rule = rule.GivesBack()
	}
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	peek := remote.Entry{Key: string(remote.NewUserKey(key)), Rule: rule.Named(o.keys, r.Name(), nil), Operation: lua.Peek, Cost: 1}
	replies, err := o.script.Run(ctx, []remote.Entry{peek}, 0)
	if err != nil {
		t.Fatalf("peek at %q: %v", key, err)
	}
	return r.Limit().Quota() - replies[0].Remaining
}
