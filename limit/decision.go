package limit

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Decision is the answer to one request.
type Decision struct {
	// Allowed says whether the request may proceed. If it is true, the cost has been charged, except by a
	// peek or if WouldDeny is true. If it is false, nothing has been charged.
	Allowed bool

	// HeldBack says that this limit did not deny, but another limit did that tiered.Limiter.AllowAll
	// decided together with it. This limit would have granted its cost, or was not asked at all
	// (Remaining is then 0). Allowed is false and RetryAfter is 0.
	HeldBack bool

	// DryRun says that the rule never denies; see tiered.DryRun.
	DryRun bool

	// WouldDeny says that the rule is on a dry run and would have denied. Allowed is true nevertheless;
	// the other fields, including RetryAfter, are those of the denial.
	WouldDeny bool

	// Granted is the number of units charged. It is the cost if Allowed, the part of the cost that fit if
	// the request was for "up to" that many units, and 0 if nothing was charged.
	Granted int64

	// ChargedAt is the time of the charge in microseconds, on the key's own clock in Redis. A refund uses
	// it to find the charge. It is 0 if Redis charged nothing. For a unit from a lease, it is the time
	// when the lease was charged.
	ChargedAt int64

	// Limit is the quota in force for the key, in units per window.
	Limit int64

	// Remaining is the number of units that the next request could still be granted right after this
	// decision. In decisions of the local and fallback tiers, it is the number that the tier last knew.
	// In decisions of the lease tier, it is what is left of the lease, plus what Redis had left when it
	// granted the lease, up to a second earlier; others may have used some of that since.
	Remaining int64

	// Used is the number of units that count in the window after this decision, including denied ones. It
	// is set only for rules that count denied requests (tiered.CountDenied), in decisions made by Redis,
	// and is 0 otherwise. It may exceed Limit.
	Used int64

	// RetryAfter is the time until the same cost would be granted if nobody else used the key and nothing
	// were given back. It is zero when Allowed (but see WouldDeny) or HeldBack.
	//
	// If Redis decided, RetryAfter is exact to the microsecond. If the denial was repeated from memory
	// (TierLocal), RetryAfter is never too long. It is too short by up to the duration of a trip, or by
	// more if the remembered denial was for another cost or if units have been charged since. If the
	// decision was made without Redis, RetryAfter is a time after which to ask again: at most 5 s, and
	// for a limit of [Concurrent] 50 ms, or 250 ms under the policy tiered.Deny.
	RetryAfter time.Duration

	// ResetAfter is the time until the key is as if it had never been used, provided that nobody uses it
	// in the meantime. In a decision of the local tier it is computed from Redis's last answer.
	ResetAfter time.Duration

	// Tier says which tier made the decision.
	Tier Tier

	// Algorithm is the algorithm that made the decision.
	Algorithm Algorithm
}

// Denied reports whether this limit denied the request. It is false if the request was denied only
// because of another limit; see HeldBack. A rule on a dry run never denies.
func (d Decision) Denied() bool { return !d.Allowed && !d.HeldBack }

// Degraded reports whether the decision was made without Redis, by the rule's
// outage policy.
func (d Decision) Degraded() bool { return d.Tier.Degraded() }

// Tier says which part of the limiter made a decision.
type Tier uint8

const (
	// TierRedis: Redis decided, authoritatively.
	TierRedis Tier = iota
	// TierLocal: this process remembered Redis's denial of the key, which still holds.
	TierLocal
	// TierFallback: Redis is lost, or does not know of all grants yet after an outage. The rule's outage
	// policy decided.
	TierFallback
	// TierLease: this process spent units that it had on lease. Redis had charged them in advance.
	TierLease
	// TierOverload: Redis is reachable but could not decide in time, because too many decisions waited
	// for it, its answers took too long, or the program gave the call less time than that
	// (tiered.DecideBy). The rule's outage policy decided. While Redis often misses decisions, a denial
	// can also mean that this instance's share has no room.
	TierOverload
)

var tierNames = [...]string{
	TierRedis: "redis", TierLocal: "local", TierFallback: "fallback", TierLease: "lease", TierOverload: "overload",
}

// Degraded reports whether the tier decides without Redis, by the rule's outage policy.
func (t Tier) Degraded() bool { return t == TierFallback || t == TierOverload }

// String returns "redis", "local", "fallback", "lease" or "overload".
func (t Tier) String() string { return nameOf(tierNames[:], int(t)) }

// MarshalText writes [Tier.String], so that JSON and logs show the name.
func (t Tier) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText reads what [Tier.String] returns.
func (t *Tier) UnmarshalText(text []byte) error {
	i := slices.Index(tierNames[:], string(text))
	if i < 0 {
		return fmt.Errorf("tierlimit: tier %q, must be one of %s", text, strings.Join(tierNames[:], ", "))
	}
	*t = Tier(i)
	return nil
}
