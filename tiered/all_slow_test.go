package tiered

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/remote"
)

// slow delays every command by a fixed time, once switched on.
type slow struct {
	on atomic.Bool
	by time.Duration
}

func (s *slow) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *slow) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (s *slow) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if s.on.Load() {
			time.Sleep(s.by)
		}
		return next(ctx, cmd)
	}
}

// Law 7: a group over several slots of a Cluster has one deadline, not one for each slot. When the deadline
// passes, the outage policies decide about the remaining slots. Units that Redis has charged by then stay
// charged.
func TestGroupOverSlotsHasOneDeadline(t *testing.T) {
	t.Parallel()
	t.Run("Cluster", func(t *testing.T) {
		const deadline = 5 * time.Second // so long that a busy machine makes no call late
		client := redistest.SharedCluster(t).Client(t)
		slow := &slow{by: deadline * 6 / 10}
		client.AddHook(slow)
		groupOverSlots(t, newLimiterOn(t, client, redistest.Prefix(), Deadline(deadline)), slow, deadline/2)
	})
	t.Run("to the millisecond", func(t *testing.T) {
		redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
			const deadline = 100 * time.Millisecond
			client := bubble.Client(t)
			slow := &slow{by: deadline * 6 / 10}
			client.AddHook(slow)
			l := newLimiterOn(t, client, redistest.Prefix(), Deadline(deadline))
			l.script.DivideBySlot()
			groupOverSlots(t, l, slow, time.Millisecond)
		})
	})
}

// groupOverSlots makes a call for three slots, each of which alone would be decided in time. The call may take longer
// than the limiter's deadline by slack.
func groupOverSlots(t *testing.T, l *Limiter, slow *slow, slack time.Duration) {
	t.Helper()
	deadline := l.config.deadline
	r := newRule(t, l, "r", limit.PerHour(10))
	var requests []Request
	var entries []remote.Entry
	for _, key := range []string{"a", "b", "c"} {
		mustAllow(t, r, key, 1) // now the slots are known, and connections are open
		requests = append(requests, Request{Rule: r, Key: key, Cost: 5})
		entries = append(entries, remote.Entry{Key: key, Rule: r.encoded})
	}
	if slots := len(l.script.Divide(entries)); slots != 3 {
		t.Fatalf("the keys lie in %d slots, want 3", slots)
	}
	slow.on.Store(true)
	started := time.Now()
	ds, err := l.AllowAll(context.Background(), requests...)
	took := time.Since(started)
	slow.on.Store(false)
	if err != nil {
		t.Fatal(err)
	}
	if took > deadline+slack {
		t.Errorf("it took %v, the deadline is %v", took, deadline)
	}
	byRedis := 0
	for i, d := range ds {
		if !d.Allowed || d.Degraded() != (d.ChargedAt == 0) {
			t.Errorf("%+v", d)
		}
		if d.Degraded() {
			continue
		}
		byRedis++
		redistest.Eventually(t, "what Redis charged stays charged", func() bool {
			d, err := r.Peek(context.Background(), requests[i].Key, 1)
			return err == nil && !d.Degraded() && d.Remaining == 4
		})
	}
	if byRedis != 1 {
		t.Errorf("Redis decided about %d slots, has time for one", byRedis)
	}
}
