package remote

import "github.com/tierlimit/tierlimit/lua"

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

	name string // the Redis key, once it was made
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
