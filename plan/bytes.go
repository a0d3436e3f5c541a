package plan

import (
	"math/bits"

	"github.com/tierlimit/tierlimit/limit"
)

// Bookkeeping is the number of bytes that a key takes in Redis beyond its MEMORY USAGE: 32 for the
// entry of its expiry, 8 that the allocator adds to the key's own entry, and a share of the hash tables
// of both, which is 16 to 32 depending on how full the tables are.
const Bookkeeping = 64

// DefaultNameBytes is the length of a key's name in Redis for which bytes are calculated if none is
// given: "tl:{" + a user key of about ten bytes + "}:" + a rule's name.
const DefaultNameBytes = 24

// The lengths of the fixed parts of a state, see lua/*.lua: the header, and each algorithm's own fields
// before the part whose length depends on a parameter.
const (
	headerBytes  = 15
	logBytes     = headerBytes + 23
	counterBytes = headerBytes + 15
	gcraBytes    = headerBytes + 19
	gcraFraction = 6
	fixedBytes   = headerBytes + 13
	slotsBytes   = headerBytes + 21
	holderBytes  = 22 // for each process that holds units, of which at most 1,000 are stored
	holdBytes    = 30 // for each open hold, of which at most 1,000 are stored
	maxLines     = 1000
	// suffixBytes is the length of ":slots" or ":holds", which is appended to a key's name for such
	// lines.
	suffixBytes = 6
)

// AtRest returns the bytes of Redis's memory that a key takes after it has used one unit. nameBytes is
// the length of its name in Redis, 0 for [DefaultNameBytes]. See [Candidate.Bytes].
func (c Candidate) AtRest(nameBytes int) int64 { return c.Bytes(1, nameBytes) }

// Full returns the bytes of Redis's memory that a key takes after it has used the whole limit. See
// [Candidate.Bytes].
func (c Candidate) Full(nameBytes int) int64 { return c.Bytes(c.Limit.Quota(), nameBytes) }

// Bytes returns the bytes of Redis's memory that a key takes in which at most the given number of units
// have counted at once. Units above the limit are debt. A log grows with debt, and a counter grows if a
// count of that many units takes more bytes than a count of the limit (see [Candidate.MostWithDebt]).
//
// The result is what used_memory grows by: the key's MEMORY USAGE and [Bookkeeping]. It is calculated
// from the formats of the states and the sizes in which Redis 7 and its allocator store them, and tests
// check it against both. Later servers take some bytes less. A log that is not full is taken to be charged unit by
// unit; with higher costs it may take about a quarter more, but never more than [Candidate.Full].
//
// Under a limit of [limit.Concurrent], the result is the largest possible number, for units that are
// each held by another process. Open holds are not included, see [HoldsBytes].
func (c Candidate) Bytes(units int64, nameBytes int) int64 {
	if nameBytes == 0 {
		nameBytes = DefaultNameBytes
	}
	if c.Algorithm == limit.Concurrency() {
		nameBytes += suffixBytes
	}
	if c.Algorithm == limit.SlidingLogZSet() {
		return keyBytes(nameBytes, zsetSize(min(units, c.MostWithDebt())))
	}
	return keyBytes(nameBytes, valueSize(c.state(units)))
}

// HoldsBytes returns the bytes of Redis's memory that a key takes in addition to [Candidate.Bytes]
// while the given number of its holds are open, up to 1,000: see tiered.Rule.Hold. This memory is freed
// at once when all holds are settled, and otherwise ten minutes after the last hold has ended or, with
// tiered.GiveBack, when its units would have left the window, if that is later.
// nameBytes is the length of the key's name, 0 for [DefaultNameBytes].
func HoldsBytes(open, nameBytes int) int64 {
	if open <= 0 {
		return 0
	}
	if nameBytes == 0 {
		nameBytes = DefaultNameBytes
	}
	return keyBytes(nameBytes+suffixBytes, valueSize(headerBytes+holdBytes*int64(min(open, maxLines))))
}

// keyBytes returns the bytes by which Redis's memory grows for a key with a value of the given size.
func keyBytes(nameBytes int, size int64) int64 {
	const entry = 24
	return entry + nameSize(int64(nameBytes)) + size + Bookkeeping
}

// state returns the length of the key's value, which is a string.
func (c Candidate) state(units int64) int64 {
	l := c.Limit
	switch {
	case c.Algorithm.Same(limit.SlidingLog()):
		width := int64(5)
		if l.Window().Microseconds() >= 1<<38 {
			width = 6
		}
		units = min(units, c.MostWithDebt())
		return logBytes + width*ring(units, max(units, l.Quota()))
	case c.Algorithm.Buckets() > 0:
		most := max(l.Quota(), min(units, c.MostWithDebt())) // all of these units may be in one sub-window
		return counterBytes + int64(c.Algorithm.Buckets()+1)*bytesOf(most)
	case c.Algorithm.Same(limit.GCRA()):
		if l.Window().Microseconds()%l.Quota() != 0 {
			return gcraBytes + gcraFraction
		}
		return gcraBytes
	case c.Algorithm == limit.Concurrency(): // the largest possible: each unit held by another process
		return slotsBytes + holderBytes*min(units, l.Quota(), maxLines)
	}
	return fixedBytes
}

// ring returns the number of slots in the ring of a log that has held the given number of units,
// charged one by one. Whenever the ring is full, it grows by a quarter plus four slots, up to the
// quota.
func ring(units, quota int64) (slots int64) {
	for slots < units {
		held := slots + 1
		slots = max(held, min(quota, held*5/4+4))
	}
	return slots
}

// bytesOf returns the number of bytes that it takes to store n.
func bytesOf(n int64) int64 { return int64(bits.Len64(uint64(n))+7) / 8 }

// nameSize and valueSize return the bytes that Redis allocates for a key's name, and for a string
// value: the text, its header and a zero byte. A value of up to 44 bytes is allocated in one piece with
// the object of 16 bytes that describes it.
func nameSize(n int64) int64 {
	if n < 32 {
		return allocated(1 + n + 1)
	}
	return allocated(textHeader(n) + n + 1)
}

func valueSize(n int64) int64 {
	const object, embedded = 16, 44
	if n <= embedded {
		return allocated(object + textHeader(n) + n + 1)
	}
	return object + allocated(textHeader(n)+n+1)
}

func textHeader(n int64) int64 {
	switch {
	case n < 1<<8:
		return 3
	case n < 1<<16:
		return 5
	}
	return 9
}

// allocated returns the size class of jemalloc into which n bytes fall. The classes are the multiples
// of 16 up to 128, and above that, four classes between each two powers of two.
func allocated(n int64) int64 {
	step := int64(16)
	for n > step*8 {
		step *= 2
	}
	return (n + step - 1) / step * step
}
