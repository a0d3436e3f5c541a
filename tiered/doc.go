// Package tiered is the main package of tierlimit: it enforces request limits over a whole fleet of
// processes.
//
// A [Limiter] decides in three tiers. In the process, remembered denials answer requests for keys that are
// known to be over their limit, without a trip to Redis. Redis decides all other requests, atomically and on
// its own clock. While Redis cannot be reached, each rule's outage policy decides: by default an approximation,
// which is computed from this process's own record of its grants and the size of the fleet.
//
//	limiter, err := tiered.New(rdb)
//	search, err := limiter.Rule("search", limit.PerMinute(60))
//	d, err := search.Allow(ctx, userID)
//	if !d.Allowed { /* try again in d.RetryAfter */ }
//
// Make one Limiter per process and one [Rule] per thing to limit, when the program starts. Both are safe
// for concurrent use. Everything that can be prepared is prepared at that time.
//
// # What errors mean
//
// A denial is not an error, and an error is not a denial. Neither the loss of Redis nor high load causes
// errors: decisions that Redis cannot make in time are made by the rule's outage policy ([OnOutage]). The
// remaining errors are mistakes of the caller (an empty key, a cost that can never fit), a cancelled
// context, and a closed limiter.
//
// # Monitoring
//
// [Limiter.Stats] returns counts of decisions by tier. Package promlimit exports them to Prometheus, and
// module otellimit exports them to OpenTelemetry. A program that imports neither package links no
// monitoring system. [Logger] and [OnStateChange] report outages.
//
// # The Redis client
//
// [New] uses a client as it is, with its own pool and time-outs. The limiter keeps its deadline whatever
// the client's time-outs are, but a client that waits longer ties up connections in an outage. [Open]
// makes a client with suitable settings, and its documentation lists them.
package tiered
