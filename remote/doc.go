// Package remote is the Redis tier: it encodes decisions for the scripts of
// package lua, groups them into batches, runs them, decodes the replies, and
// keeps fleet membership.
//
// It does not import the in-process tier, breakers or metrics; package tiered connects it to them
// through [Hooks] and [Observer].
//
// From keys to replies:
//
//	keys.go      Keyspace: from rule and user key to a Redis key; hash_slot.go: the Cluster slot of a key
//	rule.go      Rule: a limit and its algorithm, encoded once
//	entry.go     Entry: what the script is asked; hold.go: holds; reply.go: Reply, the answer
//	batcher.go   Batcher: has entries decided; lead.go: group commit, and who makes a trip
//	trip.go      a trip: load.go puts waiting calls (call.go, queue.go) on it, answers.go hands out the answers
//	batch.go     combines the calls of a trip into entries
//	reaper.go    ends calls and trips (trip_context.go) at their deadline
//	room.go      how many calls may wait; distance.go: how far away Redis is; clock.go: Redis's clock
//	script.go    Script: runs a batch, by slot on a Cluster; script_load.go: loads the script
//	run.go       one run that needs several commands; pack.go: a command's packed argument
//	node.go      a server, or each master of a Cluster (masters.go, direct.go, redirect.go)
//	held.go      keeps connections between trips; adapt.go: makes clients keep deadlines; quiet.go: makes
//	             their connections quiet
//	fleet.go     Fleet: the instances that share the limits, and whether Redis has lost data
//	errors.go    the errors of decisions, and what kind of failure an error is
package remote
