package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// The floors do the trip and decide nothing: no limiter that makes it can be
// faster. Their scripts are given the key, as a limiter's are.

const emptyScript = "return 1"

func openEvalsha(ctx context.Context, e environment, _ *workload) (*subject, error) {
	client, sha, err := openEmptyScript(ctx, e)
	if err != nil {
		return nil, err
	}
	call := func(ctx context.Context, key string) (outcome, error) {
		return reached(client.EvalSha(ctx, sha, []string{key}).Err())
	}
	return &subject{name: `floor: EVALSHA "return 1"`, perCall: 1, timeEvery: 1, call: call, close: client.Close}, nil
}

// openPipeline sends many at once; their latency is that of the whole pipeline.
func openPipeline(ctx context.Context, e environment, _ *workload) (*subject, error) {
	const length = 100
	client, sha, err := openEmptyScript(ctx, e)
	if err != nil {
		return nil, err
	}
	call := func(ctx context.Context, key string) (outcome, error) {
		pipe := client.Pipeline()
		for range length {
			pipe.EvalSha(ctx, sha, []string{key})
		}
		_, err := pipe.Exec(ctx)
		return reached(err)
	}
	name := fmt.Sprintf("floor: %d EVALSHA per pipeline", length)
	return &subject{name: name, perCall: length, timeEvery: 1, call: call, close: client.Close}, nil
}

func openEmptyScript(ctx context.Context, e environment) (*redis.Client, string, error) {
	client, err := newClient(e.url, e.pool)
	if err != nil {
		return nil, "", err
	}
	sha, err := client.ScriptLoad(ctx, emptyScript).Result()
	if err != nil {
		return nil, "", errors.Join(err, client.Close())
	}
	return client, sha, nil
}

// openIncr counts, without a limit or a window. Its keys do not expire, so it
// removes them.
func openIncr(_ context.Context, e environment, w *workload) (*subject, error) {
	client, err := newClient(e.url, e.pool)
	if err != nil {
		return nil, err
	}
	call := func(ctx context.Context, key string) (outcome, error) {
		return reached(client.Incr(ctx, key).Err())
	}
	remove := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		var err error
		for keys := range slices.Chunk(w.keys, 1000) {
			err = errors.Join(err, client.Unlink(ctx, keys...).Err())
		}
		return errors.Join(err, client.Close())
	}
	return &subject{name: "floor: INCR", perCall: 1, timeEvery: 1, hasState: true, call: call, close: remove}, nil
}

func reached(err error) (outcome, error) {
	if err != nil {
		return failed, err
	}
	return asExpected, nil
}
