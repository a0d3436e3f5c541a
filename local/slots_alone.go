package local

import (
	"math"
	"math/bits"
	"time"
)

// GrantAlone grants a slot without Redis, if the process then holds no more than its share. The process's
// slots of the key stay valid until Redis knows of them.
func (t *Slots[O]) GrantAlone(now int64, key HeldKey, owner O, ttl time.Duration, share Share, units int64, s *Slot[O]) (granted bool, left int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return false, 0
	}
	h := t.held(key)
	defer h.clean(now)
	h.ownedBy(owner, ttl)
	if left = h.room(now, share); left < units {
		return false, left
	}
	h.kept.Store(true)
	h.add(units, []*Slot[O]{s})
	h.changes++
	h.doubts(now)
	return true, left - units
}

// Share describes how much this process may hold of a key while Redis cannot be asked, or does not know
// what others hold. The share is the units that the process holds plus its part of the units that were
// free. If it holds none, the share is its part of the limit. The first use in an outage fixes the share.
type Share struct {
	Quota  int64  // units of the limit
	Outage uint32 // identifies the outage; 0: no outage
	Fleet  int    // the number of instances that share the limit
	Any    bool   // the process may hold any number of units
}

// room returns how many more units the process may hold within its share. The lock must be held.
func (h *Held[O]) room(now int64, s Share) int64 {
	h.lapse(now)
	if s.Any {
		return math.MaxInt64 - h.units - h.reserved
	}
	if s.Outage == 0 || h.outage != s.Outage {
		h.outage, h.quota = s.Outage, s.Quota
		instances := int64(max(1, s.Fleet))
		if h.share = max(1, s.Quota/instances); h.units > 0 {
			h.share = min(s.Quota, h.units+min(h.free, s.Quota)/instances)
		}
	}
	return max(0, h.shareOf(s.Quota)-h.units-h.reserved)
}

// shareOf returns the share of a limit. The limit may be another one than when the share was fixed; the
// share is then the same part of it.
func (h *Held[O]) shareOf(quota int64) int64 {
	hi, lo := bits.Mul64(uint64(h.share), uint64(quota))
	share, _ := bits.Div64(hi, lo, uint64(h.quota)) // h.share is at most h.quota
	return max(1, int64(share))
}

// Room returns how many more units the process may hold within its share.
func (t *Slots[O]) Room(now int64, key HeldKey, share Share) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.held(key)
	defer h.clean(now)
	return h.room(now, share)
}

// Reserve reserves units of the share for at most count slots, which Redis is then asked for. Each slot
// has the given number of units. If the share has no room for even one slot, reserved is 0. room is the
// room before the reservation. If reserved is not 0, the caller must call Unreserve once the answer is
// recorded.
func (t *Slots[O]) Reserve(now int64, key HeldKey, owner O, ttl time.Duration, share Share, units, count int64) (reserved, room int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.held(key)
	defer h.clean(now)
	h.ownedBy(owner, ttl) // a statement about the key may have to be sent before Redis is asked
	room = h.room(now, share)
	reserved = min(count, room/units) * units
	h.reserved += reserved
	return reserved, room
}

// Unreserve gives back units that were reserved of a key's share.
func (t *Slots[O]) Unreserve(now int64, key HeldKey, units int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.held(key)
	h.reserved -= units
	h.clean(now)
}

// Keep makes the slots of keys whose Redis is not reachable valid until Redis knows of them again, except
// slots that end in time.
func (t *Slots[O]) Keep(now int64, reachable func(HeldKey) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range t.byKey {
		if h.lapse(now); h.timed < len(h.slots) && !h.kept.Load() && !reachable(h.HeldKey) {
			h.kept.Store(true)
			h.doubts(now)
		}
	}
}
