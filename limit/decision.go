package limit

import "time"

// Decision is the answer to one request.
type Decision struct {
	// Allowed says whether the request may proceed. If it is true, the cost has been charged, except
	// by a peek and if WouldDeny is true. If it is false, nothing has been charged.
	Allowed bool

	// HeldBack says that this limit did not deny: the request was denied by another of the
	// limits that tiered.Limiter.AllowAll decided about together. This one would have granted
	// its cost, or was not asked at all (Remaining is then 0). Allowed is false and
	// RetryAfter is 0.
	HeldBack bool

	// DryRun says that the rule never denies, see tiered.DryRun.
	DryRun bool

	// WouldDeny says that the rule is on a dry run and would have denied. Allowed is
	// true all the same; the other fields are those of the denial, RetryAfter included.
	WouldDeny bool

	// Granted is the number of units charged: the cost if Allowed, what fitted of it
	// if it was asked for "up to", and 0 if nothing was.
	Granted int64

	// ChargedAt, in microseconds, is where the charge lies in time, on the key's own
	// clock in Redis; a refund finds it by that. 0 if Redis charged nothing. From a lease
	// it is when that was charged.
	ChargedAt int64

	// Limit is the quota in force for the key, in units per window.
	Limit int64

	// Remaining is how many units a next request could still be granted right
	// after this decision. From the local and fallback tiers it is what that tier
	// last knew. From a lease it is what is left of it, and what Redis had left when it
	// was granted, up to a second before: others may have taken of that since.
	Remaining int64

	// Used is how many units count in the window after this decision, denied ones
	// included: only of rules that count those (tiered.CountDenied), decided by Redis.
	// It may be above Limit. 0 for all others.
	Used int64

	// RetryAfter is how long to wait until the same cost would be granted if nobody else used the
	// key, and nothing were given back; zero when Allowed (but see WouldDeny) or HeldBack. Decided
	// by Redis it is exact to the microsecond; repeated from memory (TierLocal) it is never too long,
	// and too short by up to the time that a trip takes, or by more if the denial that is remembered
	// is that of another cost, or if units were charged since. Decided without Redis it is a time to
	// ask again, 5 s at most, and of a limit of [Concurrent] 50 ms, or 250 ms under the policy
	// tiered.Deny.
	RetryAfter time.Duration

	// ResetAfter is the time until the key is as if it had never been used, provided that nobody uses
	// it in the meantime. In a decision of the local tier it is computed from Redis's last answer.
	ResetAfter time.Duration

	// Tier says who decided.
	Tier Tier

	// Algorithm says how it was decided.
	Algorithm Algorithm
}

// Denied reports whether this limit stood in the request's way: the request may not proceed,
// and not because of another limit only, see HeldBack. A rule on a dry run never denies.
func (d Decision) Denied() bool { return !d.Allowed && !d.HeldBack }

// Degraded reports whether the decision was made without Redis, by the rule's
// outage policy.
func (d Decision) Degraded() bool { return d.Tier.Degraded() }

// Tier says who made a decision.
type Tier uint8

const (
	// TierRedis: Redis decided, authoritatively.
	TierRedis Tier = iota
	// TierLocal: this process remembered that Redis denied the key until later.
	TierLocal
	// TierFallback: Redis is lost, or after an outage does not know all yet; the rule's
	// outage policy decided.
	TierFallback
	// TierLease: this process had units on lease, which Redis had charged before.
	TierLease
	// TierOverload: Redis is there but could not decide in time, because too many decisions
	// waited for it, its answers took too long, or the program gave the call less time than that
	// (tiered.DecideBy); the rule's outage policy decided, or, while
	// that lasts, denied what this instance's share has no room for.
	TierOverload
)

var tierNames = [...]string{
	TierRedis: "redis", TierLocal: "local", TierFallback: "fallback", TierLease: "lease", TierOverload: "overload",
}

// Degraded reports whether the tier is one that decides without Redis, by the rule's outage
// policy.
func (t Tier) Degraded() bool { return t == TierFallback || t == TierOverload }

// String returns "redis", "local", "fallback", "lease" or "overload".
func (t Tier) String() string { return nameOf(tierNames[:], int(t)) }
