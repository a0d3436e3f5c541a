package tiered

import (
	"context"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/local"
)

// releasing is a hook that releases a slot while a command is in flight, if the slot's key is in doubt. If Redis is far
// away, that happens to a key with many slots.
type releasing struct {
	watching
	mu    sync.Mutex
	slots []*Slot
}

// inDoubt reports whether the slot's key is in doubt.
func (s *Slot) inDoubt() bool {
	l := s.rule.limiter
	h, wait := l.slots.table.Enter(s.rule.heldKey(&s.key), s.rule, s.rule.slotTTL)
	if wait == nil {
		h.Unchanged(l.now(), -1)
	}
	return wait != nil
}

func (h *releasing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.mu.Lock()
		if n := len(h.slots); n > 0 && h.slots[n-1].inDoubt() {
			h.slots[n-1].Release()
			h.slots = h.slots[:n-1]
		}
		h.mu.Unlock()
		return next(ctx, cmd)
	}
}

// Laws 7 and 13: a key's doubt ends with the first statement that is answered, however often slots of the key are
// released. No units can be acquired meanwhile, so the doubt would otherwise last until no slots are left. What Redis
// counted in excess is given back.
func TestLaws7And13ADoubtEndsAlthoughSlotsAreReleased(t *testing.T) {
	t.Parallel()
	client, hook := redistest.Shared(t).Client(t), new(releasing)
	client.AddHook(hook)
	l := newLimiterOn(t, client, redistest.Prefix())
	const held = 100
	jobs := newRule(t, l, "jobs", limit.Concurrent(2*held))
	var slots []*Slot
	for range held {
		slot, d, err := jobs.Acquire(t.Context(), "k", 1)
		if err != nil || slot == nil {
			t.Fatal(d, err)
		}
		slots = append(slots, slot)
	}
	l.slots.table.Doubt(l.now(), func(local.HeldKey) bool { return true }) // so that releases are not sent
	hook.mu.Lock()
	hook.slots = slots
	hook.mu.Unlock()
	if slot, d, err := jobs.Acquire(t.Context(), "k", 1); err != nil || slot == nil {
		t.Fatal(d, err)
	}
	hook.mu.Lock()
	left := len(hook.slots)
	hook.slots = nil
	hook.mu.Unlock()
	if left < held/2 {
		t.Errorf("the doubt lasted until %d of %d slots were left", left, held)
	}
	redistest.Eventually(t, "Redis counts what is held", func() bool {
		d, err := jobs.Peek(t.Context(), "k", 1)
		return err == nil && d.Remaining == int64(2*held-left-1)
	})
}
