package tiered

import (
	"cmp"
	"context"
	"crypto/rand"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/outage"
	"github.com/tierlimit/tierlimit/local/ledger"
	"github.com/tierlimit/tierlimit/remote"
)

// newShards makes the shards, which handle Redis's outages.
func (l *Limiter) newShards() *outage.Shards {
	instance := rand.Text()       // names this instance in Redis
	largest := l.config.fleetSize // 0 if not known
	if l.fleetFile != nil {
		largest = max(largest, l.fleetFile.read(time.Now()))
	}
	c := outage.Config{
		Context: l.ctx, Go: l.background.Go, Now: l.now,
		Deadline:  l.config.deadline,
		ColdStart: ledger.ColdStart{Born: l.now(), Lasts: l.config.coldStart},
		Assumed:   cmp.Or(largest, assumedInstances),
		Largest:   largest,
		Instance:  instance,
		Ledger:    l.ledger,
		Connect: func(s *outage.Shard, assumed int) (outage.Decider, outage.Membership) {
			b := remote.NewBatcher(l.script, l.batching, remote.Hooks{
				Begin: s.Breaker.Begin, Now: l.now, Shard: s.Index(),
				Trip: func(calls int, took time.Duration, err error) {
					l.metrics.trip(calls, took, err)
					s.TripEnded(took, err)
				},
			})
			return b, remote.NewFleet(b, l.keys, instance, outage.FleetTTL, assumed)
		},
		Hint:            func(err error) string { return tlsHint(l.client, err) },
		Explain:         l.explain,
		Joined:          l.joined,
		BeforeHeartbeat: l.script.ReturnIdleConnections,
		HeartbeatFailed: l.metrics.failedToAsk,
		Changed:         l.config.onStateChange,
		BreakerChanged:  l.slots.wake.Send,
		DataLost:        l.doubtSlots,
		Log:             l.log,
	}
	switch client := l.client.(type) {
	case *redis.Client:
		c.Address = client.Options().Addr
	case *redis.ClusterClient:
		var before atomic.Pointer[remote.Masters]
		c.Masters = func(ctx context.Context) (*remote.Masters, error) {
			m, err := remote.MastersOf(ctx, client, before.Load())
			if err == nil {
				before.Store(m)
			}
			return m, err
		}
		c.Refresh = client.ReloadState
		c.MayHaveChanged = l.script.MayHaveChanged
		c.Slot = l.keys.Slot
	}
	if file := l.fleetFile; file != nil {
		c.Size = func(size int) {
			l.background.Go(func() { file.heard(size, time.Now()) }) // writing may be slow
		}
	}
	return outage.New(c)
}

// shardOf returns the shard of a key.
func (l *Limiter) shardOf(key *callKey) *outage.Shard { return l.shards.Of(key.inRedis()) }
