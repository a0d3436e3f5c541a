package plan

import "github.com/tierlimit/tierlimit/limit"

// Bookkeeping is what a key takes in Redis beyond its MEMORY USAGE, in bytes: 32 for
// the entry of its expiry, 8 that the allocator adds to the key's own entry, and a
// share of the hash tables of both, 16 to 32 by how full these are.
const Bookkeeping = 64

// DefaultNameBytes is the length of a key's name in Redis that bytes are calculated
// for where none is given: "tl:{" + a user key of about ten bytes + "}:" + a rule's
// name.
const DefaultNameBytes = 24

// Lengths of what a state begins with, see lua/*.lua: the header, and each
// algorithm's own fields before what grows with a dial.
const (
	headerBytes  = 15
	logBytes     = headerBytes + 23
	counterBytes = headerBytes + 15
	gcraBytes    = headerBytes + 19
	gcraFraction = 6
	fixedBytes   = headerBytes + 13
	slotBytes    = 22 // of each process that holds units, of which there are 1,000 at most
	holdBytes    = 30 // of each open hold, of which there are 1,000 at most
	mostLines    = 1000
	// The names of keys with lines are those of the rule's keys, and ":slots" or ":holds".
	suffixBytes = 6
)

// AtRest is the bytes of Redis's memory that a key takes which has used one unit;
// nameBytes is the length of its name in Redis, 0 for [DefaultNameBytes]. See
// [Candidate.Bytes].
func (c Candidate) AtRest(nameBytes int) int64 { return c.Bytes(1, nameBytes) }

// Full is the bytes of Redis's memory that a key takes which has used the whole
// limit. See [Candidate.Bytes].
func (c Candidate) Full(nameBytes int) int64 { return c.Bytes(c.Limit.Quota(), nameBytes) }

// Bytes is the bytes of Redis's memory that a key takes in which up to units have
// counted at once; more than the limit are debt, with which a log grows, and a counter if a count of them
// takes more bytes than one of the limit (see [Candidate.MostWithDebt]).
// It is what used_memory grows by: MEMORY USAGE of the key and
// [Bookkeeping]. It is calculated from the formats of the states and the sizes in which Redis
// 7 and its allocator keep them; it is checked against both in tests. Later servers
// take some bytes less.
//
// Under a limit of [limit.Concurrent] it is the most that there can be, with each unit held by
// another process. Open holds are not included, see [HoldsBytes].
func (c Candidate) Bytes(units int64, nameBytes int) int64 {
	if nameBytes == 0 {
		nameBytes = DefaultNameBytes
	}
	if c.Algorithm == limit.Concurrency() {
		nameBytes += suffixBytes
	}
	return keyBytes(nameBytes, c.state(units))
}

// HoldsBytes is the bytes of Redis's memory that a key takes beside those of [Candidate.Bytes]
// while so many of its holds are open, up to 1,000: see tiered.Rule.Hold. They are there until ten
// minutes after the last hold has ended, and gone at once when all are settled. nameBytes is the
// length of the key's name, 0 for [DefaultNameBytes].
func HoldsBytes(open, nameBytes int) int64 {
	if open <= 0 {
		return 0
	}
	if nameBytes == 0 {
		nameBytes = DefaultNameBytes
	}
	return keyBytes(nameBytes+suffixBytes, headerBytes+holdBytes*int64(min(open, mostLines)))
}

// keyBytes is what Redis's memory grows by for a key.
func keyBytes(nameBytes int, value int64) int64 {
	const entry = 24
	return entry + nameSize(int64(nameBytes)) + valueSize(value) + Bookkeeping
}

// state is the length of the value.
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
		most := max(l.Quota(), min(units, c.MostWithDebt())) // which may all be in one sub-window
		return counterBytes + int64(c.Algorithm.Buckets()+1)*bytesOf(most)
	case c.Algorithm.Same(limit.GCRA()):
		if l.Window().Microseconds()%l.Quota() != 0 {
			return gcraBytes + gcraFraction
		}
		return gcraBytes
	case c.Algorithm == limit.Concurrency(): // the most there can be: a unit for each process
		return headerBytes + slotBytes*min(units, l.Quota(), mostLines)
	}
	return fixedBytes
}

// ring is the slots of a log's ring that has held so many units, charged one by one:
// whenever it is full it grows by a quarter and four, up to the quota.
func ring(units, quota int64) (slots int64) {
	for slots < units {
		held := slots + 1
		slots = max(held, min(quota, held*5/4+4))
	}
	return slots
}

// bytesOf is the number of bytes that n takes.
func bytesOf(n int64) (bytes int64) {
	for ; n > 0; n >>= 8 {
		bytes++
	}
	return bytes
}

// nameSize and valueSize are what Redis allocates for a key's name, and for a string
// value: the text, its header and a zero byte. A value of up to 44 bytes lies in one
// piece with the object of 16 bytes that describes it.
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

// allocated is the size class of jemalloc that n bytes fall into: multiples of 16 up
// to 128, and from there four classes between each two powers of two.
func allocated(n int64) int64 {
	step := int64(16)
	for n > step*8 {
		step *= 2
	}
	return (n + step - 1) / step * step
}
