package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// neighbours are other users of the same Redis, each of which keeps it busy for a millisecond at a time, again and
// again. They leave Redis so little time that one process can easily offer twice what it can decide.
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
	// Measure how many turns of the loop take a millisecond. The best of a few counts, because other processes
	// disturb it.
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

// leave stops the neighbours, and returns their errors when they have ended.
func (n *neighbours) leave() error {
	n.stop.Store(true)
	n.running.Wait()
	return errors.Join(n.err, n.client.Close())
}
