// Package outage enforces limits while Redis is lost, and until Redis has been charged for everything
// that was granted without it. The package does not depend on limiters, metrics or clients, and its tests
// run without Redis.
//
// A [Shard] is a process's state for one master: a circuit breaker, the membership in the fleet that
// shares the master, and an incident while there is an outage (incident.go), on which the instance's
// shares of limits depend (share.go). [Shards] has one shard or, on a Cluster, one shard for each master.
// A limiter uses them as follows:
//
//   - it asks for a key's shard ([Shards.Of]), whether the shard's master can be reached
//     (Shard.Breaker), and whether Redis may decide alone ([Shard.Settling]);
//   - it asks for a decision without Redis ([Shard.Without]), or for the room in this
//     instance's share while Redis decides too ([Shard.Reserve]);
//   - it reports units that Redis granted ([Shard.Learned]) and units that were given back
//     ([Shard.Returned]).
//
// In the background a shard sends heartbeats and probes (keeper.go), charges in Redis what was granted
// without it (charge.go), finds out whether Redis has lost its memory (amnesia.go), and ends the outage
// (settle.go). The code in cluster.go and reroute.go finds a key's shard on a Cluster, and changes the
// shards when slots move.
//
// The package's dependencies are interfaces: [Decider] and [Membership] ask Redis, [Log] reports events.
package outage
