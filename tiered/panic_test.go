package tiered

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// breaking is a hook of the program that panics once, in the next command of the goroutine that set it: before the
// command is sent or, if after is set, once Redis has answered.
type breaking struct {
	armed atomic.Bool
	after bool
}

func (h *breaking) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *breaking) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *breaking) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if name := cmd.Name(); (name == "fcall" || name == "evalsha" && len(cmd.Args()) < 8) && h.armed.Swap(false) {
			if h.after {
				_ = next(ctx, cmd)
			}
			panic("a hook")
		}
		return next(ctx, cmd)
	}
}

// Laws 12 and 13: if a hook of the client panics in the goroutine of a caller, and the program recovers, as net/http
// does, other callers for the same key are served, slots are renewed, holds are settled, and Close gives all slots back.
func TestLaws12And13CallsThatPanic(t *testing.T) {
	for what, after := range map[string]bool{"before the command": false, "after Redis's answer": true} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			callsThatPanic(t, &breaking{after: after})
		})
	}
}

func callsThatPanic(t *testing.T, hook *breaking) {
	server := redistest.Start(t)
	client := server.Client(t, func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	client.AddHook(hook)
	l, err := New(client, Prefix(redistest.Prefix()), Deadline(500*time.Millisecond), Logger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	rate := newRule(t, l, "rate", limit.PerHour(1000))
	slots := newRule(t, l, "slots", limit.Concurrent(4), SlotTTL(10*time.Minute)) // so that what leaks stays
	redistest.Eventually(t, "Redis decides", func() bool { return mustAllow(t, rate, "k", 1).Tier == limit.TierRedis })
	breaks := func(call func()) {
		t.Helper()
		defer func() { _ = recover() }()
		hook.armed.Store(true)
		call()
		t.Errorf("the hook did not panic")
	}
	within := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		t.Cleanup(cancel)
		return ctx
	}
	breaks(func() { _, _ = rate.Wait(within(), "k", 1) })
	if d, err := rate.Wait(within(), "k", 1); err != nil || !d.Allowed {
		t.Errorf("Wait: %+v, %v", d, err)
	}
	breaks(func() { _, _ = slots.AcquireWait(within(), "wait", 1) })
	if s, err := slots.AcquireWait(within(), "wait", 1); err != nil {
		t.Errorf("AcquireWait: %v", err)
	} else {
		s.Release()
	}
	breaks(func() { _, _, _ = slots.Acquire(within(), "k", 1) })
	var s *Slot
	redistest.Eventually(t, "slots are acquired again", func() bool { // once Redis was told what is held
		s, _, err = slots.Acquire(within(), "k", 1)
		return err == nil && s != nil
	})
	breaks(func() { s.Release() })
	breaks(func() {
		_, _, _ = l.TakeAll(within(), Request{Rule: slots, Key: "all", Cost: 1}, Request{Rule: rate, Key: "all", Cost: 1})
	})
	hold, _, err := rate.Hold(within(), "held", 10, time.Minute)
	if err != nil || hold == nil {
		t.Fatal(err)
	}
	breaks(func() { _ = hold.Settle(within(), 4) })
	redistest.Eventually(t, "the hold is settled nevertheless", func() bool {
		d, err := rate.Peek(within(), "held", 1)
		return err == nil && d.Remaining == 996
	})
	for _, key := range []string{"wait", "k", "all"} {
		redistest.Eventually(t, "all slots are free again", func() bool {
			d, err := slots.Peek(within(), key, 1)
			return err == nil && d.Remaining == 4
		})
	}
	redistest.Eventually(t, "no key is held or in doubt", func() bool { return l.slots.table.Keys() == 0 })
}
