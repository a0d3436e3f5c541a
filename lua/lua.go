// Package lua holds the scripts that run in Redis, and the numbers on which Go and the scripts must agree. It has
// no logic of its own: the scripts and their explanations are in the .lua files beside this one.
//
//	numbers.lua         exact integers, bytes
//	state.lua           the common part of every key's state: clock, expiry
//	sliding_log.lua     one file per algorithm
//	log_ring.lua        the log's encodings: a ring in a string,
//	log_zset.lua        a sorted set
//	sliding_counter.lua
//	gcra.lua
//	fixed_window.lua
//	concurrent.lua      units that are held at the same time, and given back
//	lease.lua           units charged in advance for one process
//	hold.lua            units charged for something whose cost is known at its end
//	frame.lua           runs a batch of entries over the algorithms
//	fleet.lua           a script of its own: fleet membership and ping
//
// They need a server with Lua scripts, SET with PXAT (Redis 6.2) and script
// effects replication (Redis 5), and nothing else.
package lua

import (
	"embed"
	"strings"
)

//go:embed *.lua
var files embed.FS

// source returns the text of some of the files, in order.
func source(names ...string) string {
	var text strings.Builder
	for _, name := range names {
		file, err := files.ReadFile(name + ".lua")
		if err != nil {
			panic(err)
		}
		text.Write(file)
	}
	return text.String()
}

func decide() string {
	return source("numbers", "state", "sliding_log", "log_ring", "log_zset", "sliding_counter", "gcra", "fixed_window",
		"concurrent", "lease", "hold", "frame")
}

// DecideScript is the script that makes decisions: the frame over all algorithms. Its
// keys, arguments and reply are described at the top of frame.lua.
func DecideScript() string { return decide() + "\nreturn decide(KEYS, ARGV)\n" }

// DecideLibrary is the same as a library with one function (Redis 7); both have the given name. A script creates
// its functions again in every run. A library creates them once, when it is loaded, so a decision costs a fraction
// of Redis's time.
func DecideLibrary(name string) string {
	return "#!lua name=" + name + "\n" + decide() + "\nredis.register_function('" + name + "', decide)\n"
}

// Fleet is the script that keeps fleet membership, described in fleet.lua.
func Fleet() string { return source("fleet") }

// The codes by which a rule names its algorithm.
const (
	SlidingLog     = 1
	SlidingCounter = 2
	GCRA           = 3
	FixedWindow    = 4
	SlidingLogZSet = 5
	Concurrency    = 6
)

// The operations of an entry.
const (
	// Take charges the cost if it fits.
	Take = 0
	// TakeUpTo charges as much of the cost as fits.
	TakeUpTo = 1
	// Peek charges nothing, and does not prolong the key's life.
	Peek = 2
	// Refund takes back units of an earlier charge, as far as they still count.
	Refund = 3
	// Forget makes the key as if it had never been used.
	Forget = 4
	// Charge charges, once, units that were granted earlier without Redis, whether or not they fit.
	Charge = 5
	// Lease charges units in advance for one process, as far as enough are free.
	Lease = 6
	// Slots tells Redis how many units of a concurrency limit a process holds, or that the process
	// is alive.
	Slots = 7
	// Hold charges the cost if it fits, for work whose cost is known only when it is done.
	Hold = 8
	// HoldUpTo charges as much of the cost as fits, for the same purpose.
	HoldUpTo = 9
	// Settle corrects, once, the charge of a hold to what was used.
	Settle = 10
	// Extend makes a hold end later.
	Extend = 11
	// Takes stands for several Takes of the same rule and cost, each of its own key. Only the packed argument has it.
	Takes = 12
)

// SlotsAsKnown, instead of a number of units, says that a process holds as many units as Redis knows.
const SlotsAsKnown = 1<<48 - 1

// LongestSlot is the longest TTL of a process's units, in µs.
const LongestSlot = 600_000_000

// The lengths of parts of the packed argument, in bytes.
const (
	// RuleBytes is the length of a rule. Its last ParameterBytes are the algorithm's parameters.
	RuleBytes      = 15 + ParameterBytes
	ParameterBytes = 28
)

// The form of a packed entry is its operation plus these flags.
const (
	SameKey  = 8
	HasGroup = 16
	LongCost = 32
	HasCount = 64
	// FurtherOperation replaces the 8 in an operation from 8 on.
	FurtherOperation = 128
)

// GivesBack, added to the code of a rule's algorithm, means that holds which are not settled are given back at
// their end.
const GivesBack = 128

// The largest limits that a log can hold, as a ring and as a sorted set. An entry may write that many units, which
// blocks Redis for some 10 to 20 ms. Larger limits need another algorithm.
const (
	MaxLogUnits     = 100_000
	MaxLogZSetUnits = 5_000
)

// LongestLease is the longest time that a lease may last, in µs.
const LongestLease = 1_000_000

const (
	// LongestHold is the longest time that a hold may last without being extended, in µs.
	LongestHold = 86_400_000_000
	// LateHold is how long after its end a hold may still be settled, in µs.
	LateHold = 600_000_000
	// MaxHolds is the largest number of holds of a key that may be open at the same time.
	MaxHolds = 1000
)

const (
	// NotAfterStep is the unit, in µs, in which the packed argument gives the time between the base and an entry's
	// not-after.
	NotAfterStep = 64
	// NoNotAfter means that an entry has no not-after.
	NoNotAfter = 1<<16 - 1
	// MaxCount is the largest count of an entry.
	MaxCount = 1<<24 - 1
	// MaxUnits is the largest number of units in a pair of a Charge.
	MaxUnits = 1<<48 - 1
)

// The outcomes of an entry that are not numbers of units. Package remote has a Status of the same name for each.
const (
	Expired    = -1
	Unreadable = -2
	HeldBack   = -3
)
