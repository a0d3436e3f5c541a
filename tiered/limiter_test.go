package tiered

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/remote"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// newLimiterOn returns a limiter with the given prefix, which is closed when the test ends. Its default deadline
// is long, because tests that are not about deadlines must not depend on them.
func newLimiterOn(t testing.TB, client redis.UniversalClient, prefix string, options ...Option) *Limiter {
	t.Helper()
	options = append([]Option{
		Prefix(prefix), Logger(slog.New(slog.DiscardHandler)), Deadline(5 * time.Second),
		// Most tests have few keys. With memory for the default of 100,000 keys, opening and closing a limiter
		// takes a second under the race detector.
		LedgerKeys(1000), RememberDenials(1000),
	}, options...)
	l := redistest.Reached(t, client, func() (*Limiter, error) { return New(client, options...) })
	t.Cleanup(func() {
		// With a short deadline on a busy machine, Close may not leave the fleet in time.
		if err := l.Close(); err != nil && remote.KindOf(err) != remote.Timeout {
			t.Errorf("Close: %v", err)
		}
	})
	return l
}

// refusal returns the error with which New refuses a client. On a busy machine New may not reach Redis within the
// second for which it waits, and then returns none.
func refusal(t *testing.T, client redis.UniversalClient, options ...Option) (err error) {
	t.Helper()
	redistest.Eventually(t, "New refuses the client", func() bool {
		var l *Limiter
		if l, err = New(client, options...); err == nil {
			_ = l.Close()
		}
		return err != nil
	})
	return err
}

// awaitHealthy waits until Redis decides alone. On a busy machine, a limiter that is made may not reach Redis within
// the second for which New waits, and then starts in an outage.
func awaitHealthy(t testing.TB, l *Limiter) {
	t.Helper()
	redistest.Eventually(t, "Redis decides alone", func() bool { return l.State() == Healthy })
}

func keyOf(l *Limiter, key string) *callKey {
	k := l.key(key)
	return &k
}

func newRule(t testing.TB, l *Limiter, name string, lim limit.Limit, options ...RuleOption) *Rule {
	t.Helper()
	r, err := l.Rule(name, lim, options...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// If 20 instances on one Redis make 4,000 concurrent requests against a limit of 1,000, the log lets exactly
// 1,000 through.
func TestTwentyInstancesShareOneLimit(t *testing.T) {
	const instances, requests, quota = 20, 4000, 1000
	server, prefix := redistest.Shared(t), redistest.Prefix()
	rules := make([]*Rule, instances)
	for i := range rules {
		l := newLimiterOn(t, server.Client(t), prefix, Deadline(5e9))
		rules[i] = newRule(t, l, "shared", limit.PerHour(quota))
	}
	if a := rules[0].Algorithm(); a != limit.SlidingLog() {
		t.Fatalf("a limit of %d chose %v", quota, a)
	}

	remaining := make(chan int64, requests)
	var wg sync.WaitGroup
	for i := range requests {
		wg.Go(func() {
			d, err := rules[i%instances].Allow(context.Background(), "one key")
			if err != nil {
				t.Error(err)
			} else if d.Allowed {
				if d.Tier != limit.TierRedis {
					t.Errorf("granted by tier %v", d.Tier)
				}
				remaining <- d.Remaining
			}
		})
	}
	wg.Wait()
	close(remaining)
	// Each grant, by whichever instance, left one unit fewer than the grant before.
	seen := make(map[int64]bool)
	for r := range remaining {
		if r < 0 || r >= quota || seen[r] {
			t.Errorf("two grants, or an impossible one, left %d units", r)
		}
		seen[r] = true
	}
	if len(seen) != quota {
		t.Errorf("%d allowed, want %d", len(seen), quota)
	}
}

func TestLaw6MistakesHaveErrorsOfTheirOwn(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	r := newRule(t, l, "r", limit.PerMinute(10))
	ctx := context.Background()
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	for name, tc := range map[string]struct {
		want error
		call func() error
	}{
		"cost above the limit": {limit.ErrCostExceedsLimit, func() error { _, err := r.AllowN(ctx, "k", 11); return err }},
		"zero cost":            {limit.ErrInvalidCost, func() error { _, err := r.AllowN(ctx, "k", 0); return err }},
		"negative cost":        {limit.ErrInvalidCost, func() error { _, err := r.AllowN(ctx, "k", -1); return err }},
		"empty key":            {limit.ErrInvalidKey, func() error { _, err := r.Allow(ctx, ""); return err }},
		"reset of no key":      {limit.ErrInvalidKey, func() error { return r.Reset(ctx, "") }},
		"long key": {limit.ErrInvalidKey, func() error {
			if _, err := r.Allow(ctx, strings.Repeat("x", limit.MaxKey)); err != nil {
				return err
			}
			_, err := r.Allow(ctx, strings.Repeat("x", limit.MaxKey+1))
			return err
		}},
		"long list": {limit.ErrInvalidRule, func() error {
			requests := make([]Request, MaxTogether+1)
			for i := range requests {
				requests[i] = Request{Rule: r, Key: fmt.Sprint("of many ", i), Cost: 1}
			}
			if _, err := l.AllowAll(ctx, requests[1:]...); err != nil {
				return err
			}
			_, err := l.AllowAll(ctx, requests...)
			return err
		}},
		"refund of nil":     {limit.ErrInvalidRefund, func() error { return r.Refund(ctx, "k", nil, 1) }},
		"cancelled context": {context.Canceled, func() error { _, err := r.Allow(cancelled, "k"); return err }},
		"zero window":       {limit.ErrInvalidLimit, func() error { _, err := l.Rule("w", limit.Per(1, 0)); return err }},
		"zero limit":        {limit.ErrInvalidLimit, func() error { _, err := l.Rule("z", limit.Limit{}); return err }},
		"bad rule name":     {limit.ErrInvalidRule, func() error { _, err := l.Rule("a b", limit.PerHour(1)); return err }},
		"rule twice":        {limit.ErrInvalidRule, func() error { _, err := l.Rule("r", limit.PerHour(1)); return err }},
		"log too large": {limit.ErrInvalidAlgorithm, func() error {
			_, err := l.Rule("l", limit.PerHour(1<<30), Use(limit.SlidingLog()))
			return err
		}},
		"bad option":  {limit.ErrInvalidOption, func() error { _, err := New(redistest.Shared(t).Client(t), Deadline(0)); return err }},
		"no file":     {limit.ErrInvalidOption, func() error { _, err := New(redistest.Shared(t).Client(t), FleetFile("")); return err }},
		"nil logger":  {limit.ErrInvalidOption, func() error { return Logger(nil)(new(config)) }},
		"nil change":  {limit.ErrInvalidOption, func() error { return OnStateChange(nil)(new(config)) }},
		"nil clock":   {limit.ErrInvalidOption, func() error { return VirtualClock(nil)(new(config)) }},
		"before 1970": {limit.ErrInvalidOption, func() error { return VirtualClock(func() time.Time { return time.Unix(-1, 0) })(new(config)) }},
		"zero time":   {limit.ErrInvalidOption, func() error { return VirtualClock(func() time.Time { return time.Time{} })(new(config)) }},
		"far future":  {limit.ErrInvalidOption, func() error { return VirtualClock(func() time.Time { return time.Unix(1<<32, 0) })(new(config)) }},
		"nil option":  {limit.ErrInvalidOption, func() error { _, err := OpenURL("redis://127.0.0.1:1", nil); return err }},
		"of a rule":   {limit.ErrInvalidOption, func() error { _, err := l.Rule("nil", limit.PerMinute(1), nil); return err }},
		"nil client":  {limit.ErrInvalidOption, func() error { _, err := New((*redis.Client)(nil)); return err }},
		"ring":        {limit.ErrInvalidOption, func() error { _, err := New(redis.NewRing(&redis.RingOptions{})); return err }},
	} {
		t.Run(name, func(t *testing.T) {
			err := tc.call()
			if !errors.Is(err, tc.want) {
				t.Fatalf("got %v, want an error that is %v", err, tc.want)
			}
			t.Log(err)
		})
	}
}

// Law 6: options of limiters and rules accept the ranges that their comments state, both ends included, and
// reject all other values with an error.
func TestLaw6OptionsHaveBounds(t *testing.T) {
	ofDuration := func(option func(time.Duration) Option) func(int64) Option {
		return func(n int64) Option { return option(time.Duration(n)) }
	}
	ofInt := func(option func(int) Option) func(int64) Option {
		return func(n int64) Option { return option(int(n)) }
	}
	ofRule := func(option func(n int64) RuleOption) func(int64) Option {
		return func(n int64) Option { return func(*config) error { return option(n)(&ruleConfig{}) } }
	}
	for name, o := range map[string]struct {
		option      func(int64) Option
		least, most int64
		step        int64
	}{
		"HashTags":         {ofInt(HashTags), 1, 16_384, 1},
		"Deadline":         {ofDuration(Deadline), int64(time.Millisecond), int64(10 * time.Second), 1},
		"Thresholds":       {func(n int64) Option { return Thresholds(n, n) }, 0, 100_000, 1},
		"the second":       {func(n int64) Option { return Thresholds(100, n) }, 100, math.MaxInt64 - 1, 1},
		"FleetSize":        {ofInt(FleetSize), 1, 1_000_000, 1},
		"ColdStart":        {ofDuration(ColdStart), 0, int64(limit.MaxWindow), 1},
		"RememberDenials":  {ofInt(RememberDenials), 0, 100_000_000, 1},
		"LedgerKeys":       {ofInt(LedgerKeys), 1, 100_000_000, 1},
		"QueueLength":      {ofInt(QueueLength), 1, 10_000_000, 1},
		"DenialLife":       {ofRule(func(n int64) RuleOption { return DenialLife(time.Duration(n)) }), 0, int64(time.Second), 1},
		"HoldLife":         {ofRule(func(n int64) RuleOption { return HoldLife(time.Duration(n)) }), int64(time.Millisecond), int64(24 * time.Hour), 1},
		"SlotTTL":          {ofRule(func(n int64) RuleOption { return SlotTTL(time.Duration(n)) }), int64(100 * time.Millisecond), int64(10 * time.Minute), 1000},
		"Lease":            {ofRule(func(n int64) RuleOption { return Lease(int(n)) }), 1, 50, 1},
		"LeaseWithinLimit": {ofRule(func(n int64) RuleOption { return LeaseWithinLimit(int(n)) }), 1, 50, 1},
		"VirtualClock": {func(n int64) Option { return VirtualClock(func() time.Time { return time.Unix(n, 0) }) },
			0, time.Date(2100, 12, 31, 23, 59, 59, 0, time.UTC).Unix(), 1},
	} {
		for n, valid := range map[int64]bool{o.least: true, o.most: true, o.least - o.step: false, o.most + o.step: name == "the second"} {
			if err := o.option(n)(&config{}); valid && err != nil || !valid && !errors.Is(err, limit.ErrInvalidOption) {
				t.Errorf("%s(%d): %v", name, n, err)
			}
		}
	}
}
