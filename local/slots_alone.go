package local

import (
	"math"
	"time"
)

// GrantAlone grants a slot without Redis, if the process then holds no more than its share. The
// process's slots of the key stay valid until Redis knows of them.
func (t *Slots[O]) GrantAlone(now int64, key HeldKey, owner O, ttl time.Duration, share func(*Held[O]) int64, units int64, s *Slot[O]) (granted bool, left int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return false, 0
	}
	h := t.held(key)
	defer h.clean(now)
	h.owner, h.ttl = owner, ttl
	h.lapse(now)
	if left = share(h) - h.units - h.asking; left < units {
		return false, max(0, left)
	}
	h.keep()
	h.add(units, []*Slot[O]{s})
	h.changes++
	h.doubts(now)
	return true, left - units
}

// Share returns how many units the process may hold while Redis cannot be asked: the units that it
// holds plus its part of those that were free, or its part of the limit if it holds none. outage
// identifies the outage, 0 if there is none, and fleet is the number of instances that share the limit.
// The first call in an outage fixes the share. It is for GrantAlone, which holds the lock.
func (h *Held[O]) Share(quota int64, outage uint32, fleet int) int64 {
	if outage == 0 || h.outage != outage {
		h.outage = outage
		instances := int64(max(1, fleet))
		if h.share = max(1, quota/instances); h.units > 0 {
			h.share = min(quota, h.units+min(h.free, quota)/instances)
		}
	}
	return h.share
}

// Room returns how many more units the process may hold within its share, see [Held.Share].
func (t *Slots[O]) Room(now int64, key HeldKey, quota int64, outage uint32, fleet int) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.held(key)
	defer h.clean(now)
	return h.room(now, quota, outage, fleet)
}

// room is Room. The lock is held.
func (h *Held[O]) room(now, quota int64, outage uint32, fleet int) int64 {
	h.lapse(now)
	return max(0, h.Share(quota, outage, fleet)-h.units-h.asking)
}

// Reserve reserves units of the share for at most count slots of the given units each, which Redis is then asked
// for. It returns 0 if the share has no room for one of them, and the room. Otherwise Unreserve must follow,
// once the answer is recorded.
func (t *Slots[O]) Reserve(now int64, key HeldKey, owner O, ttl time.Duration, quota int64, outage uint32, fleet int, units, count int64) (reserved, room int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.held(key)
	defer h.clean(now)
	h.owner, h.ttl = owner, ttl // Redis may have to be told of the key before it is asked
	room = h.room(now, quota, outage, fleet)
	reserved = min(count, room/units) * units
	h.asking += reserved
	return reserved, room
}

// Unreserve gives back what was reserved of a key's share.
func (t *Slots[O]) Unreserve(now int64, key HeldKey, units int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.held(key)
	h.asking -= units
	h.clean(now)
}

// keep makes the slots valid until Redis knows of them. The lock is held.
func (h *Held[O]) keep() {
	h.kept = true
	h.till.Store(math.MaxInt64)
}

// Keep makes the slots of the chosen keys valid while Redis cannot be reached, until it knows of
// them again.
func (t *Slots[O]) Keep(now int64, which func(key HeldKey, owner O) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range t.of {
		if h.lapse(now); h.units > 0 && !h.kept && which(h.HeldKey, h.owner) {
			h.keep()
			h.doubts(now)
		}
	}
}
