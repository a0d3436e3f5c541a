// Package outage holds limits while Redis is lost, and until it knows of everything that was granted
// without it. It knows nothing of limiters, metrics or clients, and its tests run without Redis.
//
// A [Shard] is what a process knows of one master: a circuit breaker, the fleet that shares it, and
// an incident while there is an outage. [Shards] has one of them, or on a Cluster one for each
// master. A limiter asks it
//
//   - whose key it is ([Shards.Of]), whether that master is there (Shard.Breaker), and whether Redis
//     may decide alone ([Shard.Settling]);
//   - for a decision without Redis ([Shard.Without]), or for what this instance's share has room
//     for beside Redis ([Shard.Reserve]);
//   - and tells it what Redis granted ([Shard.Learned]) and what was given back
//     ([Shard.Returned]).
//
// In the background a shard sends heartbeats and probes (keeper.go), charges in Redis what was
// granted without it (charge.go), finds out whether Redis has lost its memory (amnesia.go), and ends
// the outage (settle.go). Where keys are on a Cluster, and what becomes of shards when slots move,
// is in cluster.go and reroute.go.
//
// What it needs are interfaces: [Decider] and [Membership] to ask Redis, [Counts] and [Log] to tell
// what happens.
package outage
