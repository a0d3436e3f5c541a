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

	// ErrInvalidAlgorithm: an algorithm's name or parameter is not known, or it cannot
	// represent the limit it was asked to enforce.
	ErrInvalidAlgorithm = errors.New("tierlimit: invalid algorithm")

	// ErrInvalidRule: a rule's name has a wrong form, belongs to a rule with other
	// settings, or belongs to no rule; or requests cannot be decided together
	// because of their rules or their number.
	ErrInvalidRule = errors.New("tierlimit: invalid rule")

	// ErrInvalidOption: an option given to the limiter or to a rule has a value
	// that cannot be used.
	ErrInvalidOption = errors.New("tierlimit: invalid option")

	// ErrInvalidKey: the key is empty, or longer than [MaxKey].
	ErrInvalidKey = errors.New("tierlimit: invalid key")

	// ErrInvalidCost: the cost is zero or negative, or the costs of requests that are decided together
	// add up to too much.
	ErrInvalidCost = errors.New("tierlimit: invalid cost")

	// ErrCostExceedsLimit: the cost is more than the limit could ever grant at
	// once, so waiting would not help.
	ErrCostExceedsLimit = errors.New("tierlimit: cost exceeds what the limit can ever grant")

	// ErrNilContext: the context is nil. Where there is none, pass context.Background().
	ErrNilContext = errors.New("tierlimit: the context is nil")

	// ErrInvalidRefund: the refund is larger than what is left of the charge.
	ErrInvalidRefund = errors.New("tierlimit: invalid refund")

	// ErrInvalidHold: the time for which to hold the units is out of range, or the rule cannot hold
	// units.
	ErrInvalidHold = errors.New("tierlimit: invalid hold")

	// ErrHoldEnded: the hold was settled or cancelled before, or its units were given back because its
	// time was over.
	ErrHoldEnded = errors.New("tierlimit: the hold has ended")

	// ErrWouldExceedDeadline: a wait cannot succeed before the context's deadline.
	ErrWouldExceedDeadline = errors.New("tierlimit: the wait would exceed the context's deadline")

	// ErrNotForLimit: the call does not suit the rule's limit. Units of a limit of [Concurrent] are
	// acquired and released; units of all other limits are used up.
	ErrNotForLimit = errors.New("tierlimit: the call does not suit the rule's limit")

	// ErrClosed: the limiter was closed.
	ErrClosed = errors.New("tierlimit: limiter is closed")

	// ErrAuth: Redis refused the user name or password, or requires one.
	ErrAuth = errors.New("tierlimit: Redis refused the credentials")

	// ErrTLS: Redis's certificate is from an unknown authority or for another host, or Redis refuses this
	// client's certificate.
	ErrTLS = errors.New("tierlimit: no trusted TLS connection to Redis")

	// ErrNotRedis: the server at the address does not speak Redis's protocol, or cannot run what the
	// limiter needs (Lua scripts; Redis 6.2 or newer).
	ErrNotRedis = errors.New("tierlimit: not a usable Redis server")
)
