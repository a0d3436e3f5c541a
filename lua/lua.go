// Package lua holds the scripts that run in Redis, and the numbers that Go and
// the scripts must agree on. It has no logic of its own: what the scripts do is
// written, and explained, in the .lua files beside this one.
//
//	numbers.lua         exact integers, bytes
//	state.lua           what the state of every key has in common: clock, expiry
//	sliding_log.lua     one file per algorithm
//	log_ring.lua        the log's encodings: a ring in a string,
//	log_zset.lua        a sorted set
//	sliding_counter.lua
//	gcra.lua
//	fixed_window.lua
//	frame.lua           runs a batch of entries over the algorithms
//	fleet.lua           a script of its own: fleet membership and ping
//
// They need a server with Lua scripts, SET with PXAT (Redis 6.2) and script
// effects replication (Redis 5), and nothing else.
package lua

import _ "embed"

//go:embed numbers.lua
var numbers string

//go:embed state.lua
var state string

//go:embed sliding_log.lua
var slidingLog string

//go:embed log_ring.lua
var logRing string

//go:embed log_zset.lua
var logZSet string

//go:embed sliding_counter.lua
var slidingCounter string

//go:embed gcra.lua
var gcra string

//go:embed fixed_window.lua
var fixedWindow string

//go:embed frame.lua
var frame string

//go:embed fleet.lua
var fleet string

// Decide is the script that makes decisions: the frame over all algorithms. Its
// keys, arguments and reply are described at the top of frame.lua.
func Decide() string {
	return numbers + state + slidingLog + logRing + logZSet + slidingCounter + gcra + fixedWindow + frame
}

// Fleet is the script that keeps fleet membership, described in fleet.lua.
func Fleet() string { return fleet }

// The codes by which a rule names its algorithm.
const (
	SlidingLog     = 1
	SlidingCounter = 2
	GCRA           = 3
	FixedWindow    = 4
	SlidingLogZSet = 5
)

// The operations of an entry.
const (
	// Take charges the cost if it fits.
	Take = 1
	// TakeUpTo charges as much of the cost as fits.
	TakeUpTo = 2
	// Peek charges nothing and prolongs nothing.
	Peek = 3
	// Refund takes back units of an earlier charge, as far as they still count.
	Refund = 4
	// Forget makes the key as if never used.
	Forget = 5
)

// RuleArgs is how many arguments describe a rule; EntryReplies is how many
// integers answer an entry.
const (
	RuleArgs     = 7
	EntryReplies = 7
)

// The status of an answered entry.
const (
	// Denied: the cost does not fit now. Nothing was charged.
	Denied = 0
	// Allowed: the cost fitted and was charged.
	Allowed = 1
	// Expired: the entry came after its not-after. Nothing was charged.
	Expired = 2
	// Unreadable: the key holds something that this version does not know:
	// another type, or an encoding of a later version. Nothing was charged or
	// overwritten.
	Unreadable = 3
	// HeldBack: the cost fits, but another entry of the group does not. Nothing
	// was charged.
	HeldBack = 4
)
