package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// The floors make the trip and decide nothing, or only the minimum. No limiter that makes the same trip can be
// faster.

// openReturn runs a script that does nothing. The script gets the key, as a limiter's script does.
func openReturn(ctx context.Context, e environment, _ *workload) (*subject, error) {
	client, sha, err := loadScript(ctx, e, "return 1")
	if err != nil {
		return nil, err
	}
	call := func(ctx context.Context, key string) (outcome, error) {
		return reached(client.EvalSha(ctx, sha, []string{key}).Err())
	}
	s := overRedis(call, client.Close)
	s.stateless = true
	return s, nil
}

const pipelined = 100

// openPipeline sends many such scripts in one pipeline. Its latency is that of the whole pipeline.
func openPipeline(ctx context.Context, e environment, _ *workload) (*subject, error) {
	client, sha, err := loadScript(ctx, e, "return 1")
	if err != nil {
		return nil, err
	}
	call := func(ctx context.Context, key string) (outcome, error) {
		pipe := client.Pipeline()
		for range pipelined {
			pipe.EvalSha(ctx, sha, []string{key})
		}
		_, err := pipe.Exec(ctx)
		return reached(err)
	}
	s := overRedis(call, client.Close)
	s.perCall, s.stateless = pipelined, true
	return s, nil
}

// plainGCRA is textbook GCRA and nothing more: one time stamp per key, on Redis's clock, in µs. ARGV has the interval
// of a unit, and the time that the burst takes.
const plainGCRA = `
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local arrival = math.max(now, tonumber(redis.call('GET', KEYS[1]) or 0)) + ARGV[1]
if arrival - now > tonumber(ARGV[2]) then
  return 0
end
redis.call('SET', KEYS[1], string.format('%.0f', arrival), 'PX', math.ceil((arrival - now) / 1000))
return 1
`

// openPlainGCRA makes a bare call of plainGCRA: the cost of a limiter in Redis that does nothing else.
func openPlainGCRA(ctx context.Context, e environment, w *workload) (*subject, error) {
	client, sha, err := loadScript(ctx, e, plainGCRA)
	if err != nil {
		return nil, err
	}
	interval := w.gcra.Window().Microseconds() / w.gcra.Quota()
	burst := interval * w.gcra.Burst()
	call := func(ctx context.Context, key string) (outcome, error) {
		n, err := client.EvalSha(ctx, sha, []string{"plain:" + key}, interval, burst).Int()
		if err != nil {
			return failed, err
		}
		return verdict(n == 1), nil
	}
	return overRedis(call, client.Close), nil
}

// loadScript opens a client and loads a script into the server.
func loadScript(ctx context.Context, e environment, script string) (*redis.Client, string, error) {
	client, err := newClient(e)
	if err != nil {
		return nil, "", err
	}
	sha, err := client.ScriptLoad(ctx, script).Result()
	if err != nil {
		return nil, "", errors.Join(err, client.Close())
	}
	return client, sha, nil
}

// openIncr counts calls, without a limit or a window. Its keys do not expire, so closing the subject removes them.
func openIncr(_ context.Context, e environment, w *workload) (*subject, error) {
	client, err := newClient(e)
	if err != nil {
		return nil, err
	}
	const counter = "incr:"
	call := func(ctx context.Context, key string) (outcome, error) {
		return reached(client.Incr(ctx, counter+key).Err())
	}
	remove := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		var err error
		for keys := range slices.Chunk(w.keys, 1000) {
			counters := make([]string, len(keys))
			for i, key := range keys {
				counters[i] = counter + key
			}
			err = errors.Join(err, client.Unlink(ctx, counters...).Err())
		}
		return errors.Join(err, client.Close())
	}
	s := overRedis(call, remove)
	s.sends = []string{"incr"}
	return s, nil
}

func reached(err error) (outcome, error) {
	if err != nil {
		return failed, err
	}
	return allowed, nil
}
