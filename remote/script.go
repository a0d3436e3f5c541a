package remote

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/singleflight"

	"github.com/tierlimit/tierlimit/lua"
)

// Entry asks for one decision.
type Entry struct {
	// Key is the Redis key, from [Keyspace.Key].
	Key string
	// Rule is what to hold it to.
	Rule *Rule
	// Operation is one of the operations of package lua; 0 is Take.
	Operation int
	// Cost is the number of units to charge, between 1 and the rule's capacity; or
	// to refund.
	Cost int64
	// Charged and Stamp tell a refund of which charge: its cost, less what was
	// refunded of it already, and its Reply.Stamp.
	Charged, Stamp int64
	// NotAfter, in µs on Redis's clock, is when the entry must no longer be
	// charged; 0 for always.
	NotAfter int64
	// Group, if not 0, ties neighbouring entries of the same group together: all
	// are charged or none. Their keys must differ, and on a Cluster share a slot.
	Group int
}

func (e *Entry) operation() int {
	if e.Operation == 0 {
		return lua.Take
	}
	return e.Operation
}

// Reply answers one entry.
type Reply struct {
	// Status is one of the status codes of package lua.
	Status int
	// Granted is the number of units charged, or refunded.
	Granted int64
	// Remaining is the number of units still free.
	Remaining int64
	// RetryAfter is when the same cost fits, NextAfter when a single unit does if
	// none does now, ResetAfter when the key is as good as new.
	RetryAfter, NextAfter, ResetAfter time.Duration
	// Clock is the deciding server's clock, in µs; Stamp is the key's own time.
	Clock, Stamp int64
	// Err is set instead of all others where the entry's part of a batch failed.
	Err error
}

// Script runs the decision script. It is safe for concurrent use.
type Script struct {
	client redis.UniversalClient
	bySlot bool
	source string
	sha    string
	load   singleflight.Group
}

// NewScript returns a Script that runs on client: one node, Sentinel or Cluster.
func NewScript(client redis.UniversalClient) *Script {
	_, oneNode := client.(*redis.Client)
	source := lua.Decide()
	return &Script{
		client: client,
		// A client of an unknown type may be a Cluster's: keeping to one slot a
		// call is right everywhere.
		bySlot: !oneNode,
		source: source,
		sha:    redis.NewScript(source).Hash(),
	}
}

// Run decides all entries, in order, and returns a reply for each. clock, if not
// 0, replaces Redis's clock (tests and replays only). The error is that of the
// whole call; where only a part of it failed, as on a Cluster with a node down,
// that part's replies carry an Err.
func (s *Script) Run(ctx context.Context, entries []Entry, clock int64) ([]Reply, error) {
	r := run{client: s.client, entries: entries, parts: s.split(entries), clock: clock}
	r.cmds = make([]chargeCmd, len(r.parts))
	all := make([]int, len(r.parts))
	for i := range all {
		all[i] = i
	}
	r.send(ctx, all, "evalsha", s.sha)

	// NOSCRIPT proves that nothing ran: load the script and send those parts again.
	// If it could not be loaded, or the script cache was emptied once more in that
	// very moment, send it along.
	if again := r.withoutScript(); again != nil {
		if s.Load(ctx) == nil {
			r.send(ctx, again, "evalsha", s.sha)
			again = r.withoutScript()
		}
		if again != nil {
			r.send(ctx, again, "eval", s.source)
		}
	}
	if again := r.divideTorn(); again != nil {
		r.send(ctx, again, "evalsha", s.sha)
		if again = r.withoutScript(); again != nil {
			r.send(ctx, again, "eval", s.source)
		}
	}
	if slices.ContainsFunc(r.cmds, func(cmd chargeCmd) bool { return cmd.Err() != nil }) {
		reloadCluster(ctx, s.client)
	}
	return r.replies()
}

// reloadCluster lets a Cluster's client ask in the background who has which slots,
// because a command has failed. By itself go-redis asks when a node sends it elsewhere,
// which a dead one does not, or else once a minute: so long it would go on sending
// commands to a master whose replica has taken over. It does so at most every 200 ms.
func reloadCluster(ctx context.Context, client redis.UniversalClient) {
	if cluster, ok := client.(*redis.ClusterClient); ok {
		cluster.ReloadState(ctx)
	}
}

// divideTorn divides the parts that a Cluster answered with TRYAGAIN: their slot is
// moving, and of their keys some are here and some there. That proves that nothing
// ran. One key alone is always found, so each gets a part of its own; but the entries
// of a group stay together, and fail while their keys are apart. It returns the parts
// to send again.
func (r *run) divideTorn() (again []int) {
	for i, cmd := range r.cmds {
		if !redis.HasErrorPrefix(cmd.Err(), "TRYAGAIN") {
			continue
		}
		pieceOf := make(map[any]int) // by group or key
		var pieces [][]int
		for _, at := range r.parts[i] {
			var together any = r.entries[at].Key
			if r.entries[at].Group != 0 {
				together = r.entries[at].Group
			}
			piece, seen := pieceOf[together]
			if !seen {
				piece = len(pieces)
				pieceOf[together] = piece
				pieces = append(pieces, nil)
			}
			pieces[piece] = append(pieces[piece], at)
		}
		if len(pieces) == 1 {
			continue
		}
		r.parts[i] = pieces[0]
		again = append(again, i)
		for _, piece := range pieces[1:] {
			again = append(again, len(r.parts))
			r.parts = append(r.parts, piece)
			r.cmds = append(r.cmds, chargeCmd{})
		}
	}
	return again
}

// split says which entries go into one call of the script: all, or on a Cluster
// those of one slot. Each part is a list of positions in entries.
func (s *Script) split(entries []Entry) [][]int {
	if !s.bySlot {
		part := make([]int, len(entries))
		for i := range part {
			part[i] = i
		}
		return [][]int{part}
	}
	return BySlot(entries)
}

// BySlot is the positions of the entries of each Cluster slot, in order.
func BySlot(entries []Entry) (parts [][]int) {
	partOf := make(map[uint16]int)
	for i := range entries {
		slot := keySlot(entries[i].Key)
		at, seen := partOf[slot]
		if !seen {
			at = len(parts)
			partOf[slot] = at
			parts = append(parts, nil)
		}
		parts[at] = append(parts[at], i)
	}
	return parts
}

// Load puts the script into the script cache of every node that may need it.
// Any number of callers at once load it once.
func (s *Script) Load(ctx context.Context) error {
	_, err, _ := s.load.Do("", func() (any, error) {
		cluster, ok := s.client.(*redis.ClusterClient)
		if !ok {
			return nil, s.client.ScriptLoad(ctx, s.source).Err()
		}
		var loaded atomic.Bool
		err := cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			err := node.ScriptLoad(ctx, s.source).Err()
			if err == nil {
				loaded.Store(true)
			}
			return err
		})
		if loaded.Load() {
			return nil, nil // a node that is down must not keep the others from working
		}
		return nil, err
	})
	return err
}
