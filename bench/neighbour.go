package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// neighbours are others who use the same Redis, each for a millisecond at a time,
// again and again. Beside them Redis can decide so little that one process can
// easily offer twice that.
type neighbours struct {
	client  *redis.Client
	stop    atomic.Bool
	running sync.WaitGroup
	mu      sync.Mutex
	err     error
}

const (
	neighbourCount = 4
	neighbourUses  = time.Millisecond
	spin           = "for i = 1, tonumber(ARGV[1]) do end return 1"
)

func startNeighbours(ctx context.Context, url string) (*neighbours, error) {
	client, err := newClient(environment{url: url, pool: neighbourCount})
	if err != nil {
		return nil, err
	}
	n := &neighbours{client: client}
	// How many turns of the loop take that long: the best of a few, because other
	// things happen on a machine.
	const sample = 1_000_000
	best := time.Duration(1<<63 - 1)
	for range 5 {
		started := time.Now()
		if err := client.Eval(ctx, spin, nil, sample).Err(); err != nil {
			return nil, errors.Join(err, client.Close())
		}
		best = min(best, time.Since(started))
	}
	turns := int64(sample * float64(neighbourUses) / float64(best))
	for range neighbourCount {
		n.running.Go(func() {
			for !n.stop.Load() {
				if err := client.Eval(ctx, spin, nil, turns).Err(); err != nil {
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

// leave returns when they have gone, and what went wrong for them.
func (n *neighbours) leave() error {
	n.stop.Store(true)
	n.running.Wait()
	return errors.Join(n.err, n.client.Close())
}
