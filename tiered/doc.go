// Package tiered is the door to tierlimit: request limits that a whole fleet of
// processes holds together.
//
// A [Limiter] connects three tiers. In process, a memory of denials answers what
// is plainly over the limit without a network trip. Redis decides everything
// else, atomically and on its own clock. When Redis cannot be reached, a circuit
// breaker hands decisions to an approximation from this process's own record,
// which knows how big the fleet is, and hands them back afterwards.
//
//	limiter, err := tiered.New(rdb)
//	search, err := limiter.Rule("search", limit.PerMinute(60))
//	d, err := search.Allow(ctx, userID)
//	if !d.Allowed { /* try again in d.RetryAfter */ }
//
// Make one Limiter per process and one [Rule] per thing to be limited, at start;
// both are safe for concurrent use, and a decision then does no planning.
//
// # What errors mean
//
// A denial is not an error and an error is not a denial. With the default outage
// policy a decision has no error even when Redis is gone; what remains are
// mistakes of the caller (an empty key, a cost that can never fit), a cancelled
// context, and a closed limiter. Load is none: what Redis cannot decide in time is decided
// by the policy, too.
//
// # Watching it
//
// [Limiter.Stats] returns what was decided, and by whom. Package promlimit exports it to Prometheus,
// module otellimit to OpenTelemetry; a program that imports neither links neither. [Logger] and
// [OnStateChange] tell of outages.
//
// # The Redis client
//
// [New] takes a client as it is, with its own pool and time-outs. The limiter
// keeps its deadline whatever they are, but a client that waits longer ties up
// connections in an outage; New logs what it finds wanting. [Open] makes a client
// with settings that fit: see there for what they are.
package tiered
