// Package remote is the Redis tier: it encodes decisions for the scripts of
// package lua, groups them into batches, runs them, decodes the replies, and
// keeps fleet membership.
//
// It does not import the in-process tier, breakers or metrics; package tiered connects it to them
// through [Hooks] and [Asker].
//
// From keys to replies:
//
//	keys.go      Keyspace: from rule and user key to a Redis key
//	slot.go      the Cluster slot of a key, and the masters of the slots
//	rule.go      Rule: a limit and its algorithm, encoded once
//	script.go    Script: runs a batch, by slot on a Cluster; loads the script
//	run.go       one run: commands, arguments, replies
//	batcher.go   Batcher: group commit, deadlines, late and lost replies
//	clock.go     estimates Redis's clock
//	fleet.go     Fleet: the instances that share the limits, and whether Redis has lost data
//	errors.go    what kind of failure an error is
package remote
