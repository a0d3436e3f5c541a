// Package outage enforces limits while Redis is lost, and until Redis has been charged for
// everything that was granted without it. It does not depend on limiters, metrics or clients, and
// its tests run without Redis.
//
// A [Shard] is a process's state for one master: a circuit breaker, the fleet that shares it, and
// an incident while there is an outage. [Shards] has one of them, or on a Cluster one for each
// master. A limiter uses them as follows:
//
//   - it asks for a key's shard ([Shards.Of]), whether its master can be reached
//     (Shard.Breaker), and whether Redis may decide alone ([Shard.Settling]);
//   - it asks for a decision without Redis ([Shard.Without]), or for what this instance's
//     share has room for beside Redis ([Shard.Reserve]);
//   - it reports what Redis granted ([Shard.Learned]) and what was given back
//     ([Shard.Returned]).
//
// In the background a shard sends heartbeats and probes (keeper.go), charges in Redis what was
// granted without it (charge.go), finds out whether Redis has lost its memory (amnesia.go), and ends
// the outage (settle.go). Where keys are on a Cluster, and what becomes of shards when slots move,
// is in cluster.go and reroute.go.
//
// Its dependencies are interfaces: [Decider] and [Membership] ask Redis, [Log] reports
// events.
package outage
