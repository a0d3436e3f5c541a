package limit

import "errors"

// These are the errors that callers can tell apart with errors.Is. A returned error wraps one of
// them and names the offending value.
//
// None of them means "denied": a denial is a [Decision] whose Allowed is false
// and comes with a nil error (law 6).
var (
	// ErrInvalidLimit: a limit cannot be enforced as written (zero window, quota
	// out of range, ...). Returned when a rule is made, never by a decision.
	ErrInvalidLimit = errors.New("tierlimit: invalid limit")

	// ErrInvalidAlgorithm: an algorithm's name or dial is not known, or it cannot
	// represent the limit it was asked to enforce.
	ErrInvalidAlgorithm = errors.New("tierlimit: invalid algorithm")

	// ErrInvalidRule: a rule's name cannot be used, or names a rule that already
	// exists with other settings.
	ErrInvalidRule = errors.New("tierlimit: invalid rule")

	// ErrInvalidOption: an option given to the limiter or to a rule has a value
	// that cannot be used.
	ErrInvalidOption = errors.New("tierlimit: invalid option")

	// ErrInvalidKey: the key is empty, or longer than [MaxKey].
	ErrInvalidKey = errors.New("tierlimit: invalid key")

	// ErrInvalidCost: the cost is zero or negative; or requests that are decided together have
	// costs that are too large together.
	ErrInvalidCost = errors.New("tierlimit: invalid cost")

	// ErrCostExceedsLimit: the cost is more than the limit could ever grant at
	// once, so waiting would not help.
	ErrCostExceedsLimit = errors.New("tierlimit: cost exceeds what the limit can ever grant")

	// ErrInvalidRefund: more units are to be refunded than are left of the charge.
	ErrInvalidRefund = errors.New("tierlimit: invalid refund")

	// ErrInvalidHold: the time for which units are to be held is out of range, or the rule cannot
	// hold units.
	ErrInvalidHold = errors.New("tierlimit: invalid hold")

	// ErrHoldEnded: the hold was settled or cancelled before, or given back because it came to
	// its end.
	ErrHoldEnded = errors.New("tierlimit: the hold has ended")

	// ErrWouldExceedDeadline: a wait cannot succeed before the context's deadline.
	ErrWouldExceedDeadline = errors.New("tierlimit: the wait would exceed the context's deadline")

	// ErrNotForLimit: the call does not go with the rule's limit: units of a limit of
	// [Concurrent] are acquired and released, those of all others are used up.
	ErrNotForLimit = errors.New("tierlimit: the call does not go with the rule's limit")

	// ErrClosed: the limiter was closed.
	ErrClosed = errors.New("tierlimit: limiter is closed")

	// ErrAuth: Redis refused the user name or password, or wants one.
	ErrAuth = errors.New("tierlimit: Redis refused the credentials")

	// ErrTLS: the certificate that Redis shows is of an unknown authority or for another
	// host, or Redis refuses this client's.
	ErrTLS = errors.New("tierlimit: no trusted TLS connection to Redis")

	// ErrNotRedis: what answers at the address does not speak Redis's protocol,
	// or cannot run what the limiter needs (Lua scripts; Redis 6.2 or newer).
	ErrNotRedis = errors.New("tierlimit: not a usable Redis server")
)
