package ledger

import (
	"math"
	"time"
)

// Outage has the parameters of this instance's share of a limit, other than its own grants. While Redis
// decides, all fields but Fleet are zero, and the share changes from moment to moment.
type Outage struct {
	// Number identifies the outage; 0 means no outage.
	Number uint32
	// Cut is the time at which the outage began.
	Cut int64
	// Fleet is the number of instances that share the limit.
	Fleet int
	// ColdStart is nil, unless this process began without Redis.
	ColdStart *ColdStart
}

// ColdStart is the first time of a process that began without Redis. The process may have replaced one that
// had used its share already. So its own share grows from a single unit to the whole.
type ColdStart struct {
	Born  int64         // when the process began
	Lasts time.Duration // until a share is whole; the window, if that is shorter
}

// Known is what Redis says about a key, in a reply that charged or denied units.
type Known struct {
	Granted int64 // in this reply
	// Free is the number of units of Capacity that are free. Capacity is 0 if Free cannot be used,
	// because Redis does not know of all grants.
	Free, Capacity int64
	// Sliding says that Capacity minus Free is at least the number of units of the last window. If it is
	// false, the smallest number that was free in the last window is used instead of the number that is
	// free now.
	Sliding bool
}

// The share of an instance in an outage (law 11) is as follows. own is the instance's own grants of the
// last window at the cut. used is the fleet's units in Redis's last reply, and age is the age of that
// reply.
//
//	own + (limit - used)/fleet * (1 - age/window)
//	limit/fleet                                     if the key is not known
//	own, or limit/fleet, whichever is larger, but at
//	most the share of the outage before             if nothing was learned since
//
// The own grants of all instances add up to at most the limit, and used is no less than own. So whatever
// the age, the shares add up to at most limit + limit - limit/fleet. The share is fixed at the key's
// first use after the cut.

// Learn records what a reply of Redis granted, and how much was free. It reports whether Redis has lost
// data. That is so if Redis counts less than half of the units that this instance alone was certainly
// granted. (It may count a little less because replies overtake each other.)
func (l *Ledger[O]) Learn(a *Account[O], now int64, k Known) (forgotten bool) {
	set, i := l.lock(a.Hash)
	defer set.mu.Unlock()
	if i < 0 {
		if k.Granted == 0 {
			return false
		}
		i = l.place(set, l.newRecord(a), a.Rule, now, true)
	}
	l.journalLost(set, i, a)
	r := &set.records[i]
	idle := r.expires <= now // no grants for a window
	newest := r.advance(subWindow(a.Window), now)
	exceeds := r.exceeds(newest, a.Window, a.Quota, now)
	if k.Granted > 0 {
		r.add(newest, k.Granted)
	}
	if k.Capacity == 0 {
		return false
	}
	used := k.Capacity - k.Free
	if sure := r.certain(newest); k.Sliding && used < sure {
		return used < sure/2
	}
	if !exceeds {
		r.learn(a.Window, now, idle, k)
	}
	l.owe(set, i, arrears{}) // Redis knows what the key has used
	return false
}

const wholePart = 1<<16 - 1

// exceeds reports whether more than the share of the last outage was granted in it, and still counts: another call
// site, or the rule itself before it was changed, let everything through. These units must not raise the share of a
// next outage, so the share is kept until they have left the window.
func (r *record) exceeds(newest int64, window time.Duration, quota, now int64) bool {
	return r.frozen && r.at != 0 && r.used(newest, subWindow(window), now) > shareOf(r.part, quota)
}

// learn records the free part of the limit from a reply. idle says that there were no grants for a
// window.
func (r *record) learn(window time.Duration, now int64, idle bool, k Known) {
	free := uint16(uint64(max(0, k.Free)) * wholePart / uint64(k.Capacity))
	if !k.Sliding && !r.frozen && !idle && free > r.part && r.age(window, now) < 1 {
		return
	}
	r.part, r.at, r.frozen = free, ticks(window, now), false
}

// ticks returns a moment as a number of ticks. A tick is a 65,536th of the window, but at least a
// millisecond. The number wraps around, and half of its range counts as the future: that is at least
// 32,768 windows or 24 days. By then, a window has passed without a reply, so no grants of the window are
// left.
func ticks(window time.Duration, now int64) uint32 { return uint32(now / int64(tick(window))) }

func tick(window time.Duration) time.Duration { return max(time.Millisecond, window>>16) }

// age returns how long before a moment the free part was learned, in windows. It is 0 if the part was
// learned after it.
func (r *record) age(window time.Duration, at int64) float64 {
	return float64(max(0, int32(ticks(window, at)-r.at))) * float64(tick(window)) / float64(window)
}

// share returns this instance's part of the limit. In an outage, the first call fixes it.
func (r *record) share(o Outage, window time.Duration, quota, now int64) int64 {
	if o.Number == 0 {
		return r.shareAt(o, window, quota, now)
	}
	if !r.frozen || r.at != o.Number {
		share := r.shareAt(o, window, quota, o.Cut)
		r.part, r.at, r.frozen = partOf(share, quota), o.Number, true
		if share == 1 && quota < int64(o.Fleet) {
			// The single unit that every instance has is more than its part. If the limit is raised in the
			// outage, the instance has only its part of the new one.
			r.part = uint16(wholePart / o.Fleet)
		}
	}
	return shareOf(r.part, quota)
}

// shareAt returns the share as of a moment.
func (r *record) shareAt(o Outage, window time.Duration, quota, at int64) int64 {
	length := subWindow(window)
	fleet := int64(max(1, o.Fleet))
	own := r.used(r.advance(length, at), length, at)
	switch {
	case own == 0 || r.frozen && r.at == 0:
		return max(1, quota/fleet) // Redis has said nothing about the key yet
	case r.frozen:
		return min(shareOf(r.part, quota), max(own, quota/fleet))
	}
	free := float64(r.part) / wholePart * float64(quota) / float64(fleet) * r.fresh(window, at)
	return min(quota, own+int64(free+0.5))
}

// spend subtracts units from the free part that were granted here while Redis decides but did not answer
// in time. From now on they are own grants, which raise the share. Without the subtraction, each grant
// would make room for the next one.
func (r *record) spend(o Outage, window time.Duration, quota, now, units int64) {
	if r.frozen {
		return // the share is fixed
	}
	parts := float64(units) * float64(max(1, o.Fleet)) / float64(quota) * wholePart
	if left := r.fresh(window, now); parts < float64(r.part)*left {
		r.part -= uint16(math.Ceil(parts / left))
	} else {
		r.part = 0
	}
}

// fresh returns the fraction of the free part that is still used at a moment. It decreases with age.
func (r *record) fresh(window time.Duration, at int64) float64 {
	return 1 - min(1, r.age(window, at))
}

// partOf returns a share as a part of the quota, rounded up.
func partOf(share, quota int64) uint16 {
	return uint16((min(share, quota)*wholePart + quota - 1) / quota)
}

// shareOf is the inverse of partOf. It is exact for quotas of 16 bits. For larger quotas, the result is
// too large by less than the quota's 65,535th part.
func shareOf(part uint16, quota int64) int64 {
	return max(1, int64(part)*quota/wholePart)
}

// within returns how long the share of a limit takes to grow to the whole.
func (c *ColdStart) within(window time.Duration) int64 {
	return int64(min(c.Lasts, window))
}

// reached returns how much of a share may be used. After a cold start, the amount grows evenly with the time
// since then (law 11). A single unit is free at once.
func (o *Outage) reached(share int64, window time.Duration, now int64) int64 {
	if o.ColdStart == nil {
		return share
	}
	since, all := now-o.ColdStart.Born, o.ColdStart.within(window)
	if since >= all {
		return share
	}
	return max(1, mulDivUp(share, max(0, since), all)) // rounded up, so that the first unit is free at once
}

// reaches returns the time until the given number of units of a share may be used.
func (o *Outage) reaches(units, share int64, window time.Duration, now int64) time.Duration {
	if o.ColdStart == nil {
		return 0
	}
	at := o.ColdStart.Born + mulDivUp(o.ColdStart.within(window), min(units, share)-1, share) + 1
	return time.Duration(max(0, at-now))
}
