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
	TagSlots       = 9
)

// HeaderBytes is the length of the header of every state but leases: tag, newest and offset.
const HeaderBytes = 15

// The first byte of the answer to an entry, see frame.lua. All other answers begin with the tag of a state.
const (
	AnswerNumbers   = 0
	AnswerAllowed   = 255
	AnswerWithParts = 254
)

// OutcomeOffset is added to outcomes, so that none is negative.
const OutcomeOffset = 3
