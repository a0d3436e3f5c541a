package plan

import "math/bits"

// The parts of a log that is kept as a sorted set, see lua/log_zset.lua. Redis stores up to 128 members in one piece of
// memory, a listpack, and more of them in a skip list and a hash table.
const (
	zsetMarks       = 4   // members that are not units
	zsetPacked      = 128 // the default of zset-max-listpack-entries
	packedBytes     = 66  // a listpack with the marks
	packedUnitBytes = 23  // name and score of a unit
	skipListBytes   = 750
	skipMemberBytes = 93 // name, node of the skip list (on average), and entry of the hash table
	hashBucketBytes = 8
)

// zsetSize returns the bytes that Redis allocates for a log of the given number of units that is kept as a sorted
// set.
func zsetSize(units int64) int64 {
	const object = 16
	members := units + zsetMarks
	if members <= zsetPacked {
		return object + allocated(packedBytes+packedUnitBytes*units)
	}
	buckets := int64(1) << bits.Len64(uint64(members-1)) // the next power of two
	return object + skipListBytes + skipMemberBytes*members + hashBucketBytes*buckets
}
