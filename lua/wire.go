package lua

// The tags of states, which are their first byte: encoding and version. See state.lua. A sorted set has no stored
// tag, since its type identifies it.
const (
	TagLog         = 1 // stamps of 5 bytes
	TagLongLog     = 2 // stamps of 6 bytes
	TagCounter     = 3
	TagGCRA        = 4
	TagFixedWindow = 5
	TagLogZSet     = 6
	TagLeases      = 7
	TagHolds       = 8
	TagSlots       = 10
)

// HeaderBytes is the length of the header of every state but leases: tag, newest and offset.
const HeaderBytes = 15

// The bounds of the numbers in values. A value with a larger number is damaged.
const (
	EndOfTime     = 1 << 52            // µs: all times of charges are before it
	LongestWindow = 31_622_400_000_000 // µs
	MaxKeyUnits   = 1 << 42            // of a key: four times the largest limit
	MaxLeases     = 64
	MaxHolders    = 1000 // processes that hold units of a key
)

// The first byte of the answer to an entry, see frame.lua. All other answers begin with the tag of a state.
const (
	AnswerNumbers     = 0
	AnswerAllowed     = 255
	AnswerWithParts   = 254
	AnswerChargedMore = 253
)

// OutcomeOffset is added to outcomes, so that none is negative.
const OutcomeOffset = 3
