package main

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/bench/internal/neighbours"
)

// spin is a script that keeps Redis computing for as many turns as its argument says.
const spin = "for i = 1, tonumber(ARGV[1]) do end return 1"

// startNeighbours starts other clients of the same Redis, and returns a function that ends them. Unless they are to take
// processors from the callers, Redis only sleeps for them.
func startNeighbours(ctx context.Context, url string, o *overloading) (leave func() error, err error) {
	client, err := newClient(environment{url: url, pool: neighbours.Count})
	if err != nil {
		return nil, err
	}
	keep := neighbours.Sleep(o.keep)
	if o.shared {
		turns, err := turnsIn(ctx, client, o.keep)
		if err != nil {
			return nil, errors.Join(err, client.Close())
		}
		keep = []any{"EVAL", spin, 0, turns}
	}
	n := neighbours.Start(ctx, client, keep)
	return func() error { return errors.Join(n.Leave(), client.Close()) }, nil
}

// maySleep returns an error if the server does not let clients keep it busy in this way.
func (o *overloading) maySleep(ctx context.Context, control *redis.Client) error {
	if o.shared {
		return nil
	}
	return control.Do(ctx, neighbours.Sleep(0)...).Err()
}

// turnsIn returns how many turns of the loop of spin take that long. The best of a few measurements counts, because
// other processes disturb them.
func turnsIn(ctx context.Context, client *redis.Client, long time.Duration) (int64, error) {
	const sample = 1_000_000
	best := time.Duration(1<<63 - 1)
	for range 5 {
		started := time.Now()
		if err := client.Eval(ctx, spin, nil, sample).Err(); err != nil {
			return 0, err
		}
		best = min(best, time.Since(started))
	}
	return int64(sample * float64(long) / float64(best)), nil
}
