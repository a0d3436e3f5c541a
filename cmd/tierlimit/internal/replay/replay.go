// Package replay runs recorded requests through real limiters in virtual time and compares their
// decisions with those of the textbook's exact log.
package replay

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	random "math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/cmd/tierlimit/internal/trace"
	"github.com/tierlimit/tierlimit/internal/inspect"
	"github.com/tierlimit/tierlimit/internal/textbook"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// Config says what to replay.
type Config struct {
	Trace *trace.Trace
	// Quiet has the requests that are counted as granted by Redis without asking Redis; nil if there
	// are none.
	Quiet     *Quiet
	Limit     limit.Limit
	Instances int
	// Client returns a new client of the Redis that the instances share. Each instance gets its own
	// client.
	Client func() *redis.Client
	// Passing says that the Redis is stopped after the replay, so that no keys need to be removed.
	Passing bool
	// Measurable says whether MEMORY USAGE is meaningful on that Redis.
	Measurable bool
	// Progress, if set, is called with the number of requests done since the previous call.
	Progress func(requests int)
}

// Result counts what an algorithm did.
type Result struct {
	Algorithm      string `json:"algorithm"`
	Configuration  string `json:"configuration"` // the algorithm with its parameters
	Allowed        int    `json:"allowed"`
	Denied         int    `json:"denied"`
	WronglyAllowed int    `json:"wrongly_allowed"` // allowed, although the exact log denied it
	WronglyDenied  int    `json:"wrongly_denied"`  // denied, although the exact log allowed it
	WorstWindow    int64  `json:"worst_window"`    // most units of a key allowed in any window
	NeverFit       int    `json:"never_fit"`       // denied because their cost is above the limit
	RedisCalls     int    `json:"redis_calls"`
	DecidedLocally int    `json:"decided_locally"`
	// BytesPerKey is the mean of MEMORY USAGE, or nil if the server cannot measure it.
	BytesPerKey *float64 `json:"redis_bytes_per_key"`
}

// Exact returns the decision of the textbook's log about each event. It grants quiet requests, as every
// algorithm does; quiet may be nil.
func Exact(t *trace.Trace, l limit.Limit, quiet *Quiet) []bool {
	log := textbook.New(l.Quota(), l.Window())
	allowed := make([]bool, t.Len())
	for i, e := range t.All() {
		allowed[i] = quiet.is(i) || log.AllowN(e.Key, e.At, e.Cost)
	}
	return allowed
}

// spreadSeed is the fixed seed with which every run sends the same requests to the same instances.
const spreadSeed = 20_000

// Run replays the trace under one algorithm. exact is the result of [Exact].
func Run(ctx context.Context, c Config, algorithm limit.Algorithm, exact []bool) (result Result, err error) {
	// A prefix of its own keeps a run's keys apart from anything else in the Redis.
	prefix := "tierlimit-replay-" + strings.ToLower(rand.Text()[:12])
	var virtual atomic.Int64 // µs
	fleet, err := start(ctx, c, algorithm, prefix, func() time.Time { return time.UnixMicro(virtual.Load()) })
	defer func() {
		for _, in := range fleet {
			err = errors.Join(err, in.client.Close())
		}
	}()
	left := false // the keys are not removed
	if err == nil && !c.Passing {
		defer func() {
			if !left {
				err = errors.Join(err, Remove(fleet[0].client, prefix))
			}
		}()
	}
	// Limiters are closed before their keys are removed; otherwise a heartbeat may write some keys
	// again.
	defer func() {
		for _, in := range fleet {
			if in.limiter != nil && !left {
				err = errors.Join(err, in.limiter.Close())
			}
		}
	}()
	// A Redis that hangs would hold up each of these steps for Patience. Who interrupts a replay does not wait for that.
	defer func() {
		if ctx.Err() != nil && !c.Passing && !answers(fleet[0].client) {
			left = true
			err = fmt.Errorf("interrupted, and the Redis at %s does not answer: the keys (%s:*) stay there until they expire", fleet[0].client.Options().Addr, prefix)
		}
	}()
	if err != nil {
		return Result{}, err
	}

	result.Algorithm = algorithm.Name()
	if err := result.play(ctx, c, fleet, &virtual, exact); err != nil {
		return Result{}, err
	}
	for _, in := range fleet {
		result.RedisCalls += in.redisCalls()
	}
	if c.Measurable {
		result.BytesPerKey, err = bytesPerKey(ctx, fleet[0].client, prefix)
	}
	return result, err
}

// answers reports whether a Redis answers within a second.
func answers(client *redis.Client) bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := client.Ping(ctx).Err()
	var answer redis.Error
	return err == nil || errors.As(err, &answer)
}

// play sends the trace's requests to the fleet, at the times that the trace says, and counts their decisions.
func (r *Result) play(ctx context.Context, c Config, fleet []*instance, virtual *atomic.Int64, exact []bool) error {
	worst := textbook.NewWorst(c.Limit.Window())
	spread := random.New(random.NewPCG(spreadSeed, 0))
	const progressEvery = 500
	for i, e := range c.Trace.All() {
		if c.Progress != nil && i > 0 && i%progressEvery == 0 {
			c.Progress(progressEvery)
		}
		in := fleet[spread.IntN(len(fleet))]
		if c.Quiet.is(i) {
			r.Allowed++
			r.RedisCalls++
			continue
		}
		virtual.Store(e.At)
		d, err := in.rule.AllowN(ctx, e.Key, e.Cost)
		switch {
		case errors.Is(err, limit.ErrCostExceedsLimit):
			r.NeverFit++ // and so it is denied
		case err != nil:
			return fmt.Errorf("request %d: %w", i+1, err)
		case d.Degraded():
			return fmt.Errorf("request %d: %w", i+1, in.lost())
		}
		if d.Tier == limit.TierLocal {
			r.DecidedLocally++
		}
		if d.Allowed {
			r.Allowed++
			worst.GrantN(e.Key, e.At, e.Cost)
		} else {
			r.Denied++
		}
		switch {
		case d.Allowed && !exact[i]:
			r.WronglyAllowed++
		case !d.Allowed && exact[i]:
			r.WronglyDenied++
		}
	}
	if c.Progress != nil {
		c.Progress((c.Trace.Len()-1)%progressEvery + 1)
	}
	r.WorstWindow = max(worst.Max(), c.Quiet.worstWindow())
	return nil
}

// instance is one member of the replayed fleet: a limiter, used as in a service.
type instance struct {
	client  *redis.Client
	limiter *tiered.Limiter
	rule    *tiered.Rule
}

func start(ctx context.Context, c Config, algorithm limit.Algorithm, prefix string, clock func() time.Time) (fleet []*instance, err error) {
	for range c.Instances {
		in := &instance{client: c.Client()}
		fleet = append(fleet, in)
		if in.limiter, err = connect(ctx, in.client, prefix, clock); err != nil {
			return fleet, err
		}
		in.rule, err = in.limiter.Rule("replay", c.Limit, tiered.Use(algorithm))
		if err != nil {
			return fleet, err
		}
	}
	return fleet, nil
}

// Patience is how long a decision waits for Redis. It is long because the embedded Redis is slow, the
// process may be stopped for a while, and nobody waits for the answer. Clients must not give up
// earlier.
const Patience = 10 * time.Second

// attempts is how many times a limiter is started until it has reached Redis. A limiter waits for a
// second, which is sometimes too short on a machine that is busy with other replays.
const attempts = 5

// connect returns a limiter that has reached Redis.
func connect(ctx context.Context, client *redis.Client, prefix string, clock func() time.Time) (*tiered.Limiter, error) {
	for range attempts {
		limiter, err := tiered.New(client,
			tiered.Prefix(prefix),
			tiered.VirtualClock(clock),
			tiered.Deadline(Patience),
			tiered.LedgerKeys(1),
			tiered.RememberDenials(10_000),
			tiered.Logger(slog.New(slog.DiscardHandler)),
		)
		if err != nil || !limiter.Degraded() {
			return limiter, err
		}
		if err := errors.Join(limiter.Close(), ctx.Err()); err != nil {
			return nil, err
		}
	}
	return nil, Unusable(client, client.Options().Addr, prefix)
}

// Unusable returns an error that says why a limiter with the given key prefix begins with an outage:
// the Redis at the address does not answer, or refuses to write.
func Unusable(client *redis.Client, address, prefix string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := client.Set(ctx, prefix+":unusable", "", time.Millisecond).Err()
	var answer redis.Error
	if errors.As(err, &answer) {
		return fmt.Errorf("the Redis at %s cannot be used: %w", address, err)
	}
	return fmt.Errorf("no Redis can be reached at %s: is it running, and is the address right?", address)
}

// lost returns an error that says why a decision was made without Redis. Only the limiter knows: if
// Redis's memory is full, Redis may have room for a small value a moment later.
func (in *instance) lost() error {
	for _, node := range inspect.Of(in.limiter).Snapshot().Health.Masters {
		if _, where, ok := strings.Cut(node.LastError, "MOVED "); ok { // the rest is advice on the client of a service
			return fmt.Errorf("the Redis at %s cannot be used: %w", in.client.Options().Addr, refusal("MOVED "+where))
		}
		if node.LastError != "" {
			return fmt.Errorf("the Redis at %s cannot be used: %s", in.client.Options().Addr, node.LastError)
		}
	}
	return errors.New("lost Redis during the replay")
}

// refusal is an error text of a server.
type refusal string

func (r refusal) Error() string { return string(r) }

// RedisError makes a refusal a redis.Error.
func (refusal) RedisError() {}

// redisCalls returns the number of trips that the instance made for decisions.
func (in *instance) redisCalls() int { return int(in.limiter.Stats().Trips.Seconds.Count()) }
