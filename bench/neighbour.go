package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// neighbours are other clients of the same Redis, each of which keeps it busy for some time at once, again and again.
// They leave Redis so little time that one process can easily offer twice what it can decide.
type neighbours struct {
	client  *redis.Client
	stop    atomic.Bool
	running sync.WaitGroup
	mu      sync.Mutex
	err     error
}

const (
	neighbourCount = 4
	spin           = "for i = 1, tonumber(ARGV[1]) do end return 1"
)

// startNeighbours starts the clients. Unless they are to take processors from the callers, Redis only sleeps for them.
func startNeighbours(ctx context.Context, url string, o *overloading) (*neighbours, error) {
	client, err := newClient(environment{url: url, pool: neighbourCount})
	if err != nil {
		return nil, err
	}
	n := &neighbours{client: client}
	keep := []any{"DEBUG", "SLEEP", fmt.Sprint(o.keep.Seconds())}
	if o.shared {
		turns, err := turnsIn(ctx, client, o.keep)
		if err != nil {
			return nil, errors.Join(err, client.Close())
		}
		keep = []any{"EVAL", spin, 0, turns}
	}
	for range neighbourCount {
		n.running.Go(func() {
			for !n.stop.Load() {
				if err := client.Do(ctx, keep...).Err(); err != nil {
					n.mu.Lock()
					n.err = err
					n.mu.Unlock()
					return
				}
			}
		})
	}
	return n, nil
}

// maySleep returns an error if the server does not let clients keep it busy in this way.
func (o *overloading) maySleep(ctx context.Context, control *redis.Client) error {
	if o.shared {
		return nil
	}
	return control.Do(ctx, "DEBUG", "SLEEP", "0").Err()
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

// leave stops the neighbours, and returns their errors when they have ended.
func (n *neighbours) leave() error {
	n.stop.Store(true)
	n.running.Wait()
	return errors.Join(n.err, n.client.Close())
}
