package remote

import (
	"time"

	"github.com/tierlimit/tierlimit/lua"
)

// Entry asks for one decision, or for several of the same cost one after another.
type Entry struct {
	// Key is the Redis key; or the user's, if the rule was named (see [Rule.Named]).
	Key string
	// Rule is what to hold it to.
	Rule *Rule
	// Operation is one of the operations of package lua; 0 is Take.
	Operation int
	// Cost is the number of units to charge, between 1 and the rule's capacity; or
	// to refund.
	Cost int64
	// Count is for how many decisions of that cost to take, one after another; 0 is
	// 1. Only Take has counts.
	Count int64
	// Charged and Stamp tell a refund of which charge: its cost, less what was
	// refunded of it already, and its Reply.Stamp.
	Charged, Stamp int64
	// NotAfter, in µs on Redis's clock, is when the entry must no longer be
	// charged; 0 for always.
	NotAfter int64
	// Group, if not 0, ties neighbouring entries of the same group together: all
	// are charged or none. Their keys must differ, and on a Cluster share a slot. At
	// most 65,535.
	Group int
	// Lease has the terms of a lease, whose Cost is how many units are wanted; 0 if the
	// old one is to end and no more.
	Lease *Lease

	name      string // the Redis key, once it was made
	leaseName string // the key of what is out on lease
}

// Lease is the terms on which units are charged in advance for one process, which may
// then spend them by itself (see lua/lease.lua). The reply has the units in Granted, and
// in Life for how long they may be spent, from before the entry was sent.
type Lease struct {
	// ID tells the lease from all others of the fleet; not 0.
	ID uint64
	// Over is the ID of a lease that will no longer be spent, or 0.
	Over uint64
	// Most is how many units may be out on lease over all processes. Reserve is how many
	// must be free for none to be leased.
	Most, Reserve int64
	// Life is how long the lease lasts, at most lua.LongestLease.
	Life time.Duration
}

func (e *Entry) operation() int {
	if e.Operation == 0 {
		return lua.Take
	}
	return e.Operation
}

func (e *Entry) count() int64 { return max(1, e.Count) }

// redisKey is the entry's key in Redis.
func (e *Entry) redisKey() string {
	if e.name == "" {
		e.name = e.Rule.redisKey(e.Key)
	}
	return e.name
}

// leaseKey is the key that tells what is out on lease of the entry's. No rule's name has
// a colon.
func (e *Entry) leaseKey() string {
	if e.leaseName == "" {
		e.leaseName = e.redisKey() + ":lease"
	}
	return e.leaseName
}

// sameKey reports whether the entry follows another one of its key, so that the key
// need not be sent again. A group's keys all differ.
func (e *Entry) sameKey(before *Entry) bool {
	return e.redisKey() == before.redisKey()
}

// work is how many units the script writes one by one for the entry.
func (e *Entry) work() int64 {
	if !e.Rule.perUnit {
		return 0
	}
	return e.Cost * e.count()
}
