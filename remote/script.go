package remote

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
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
	// Cost is the number of units to charge, between 1 and the rule's capacity.
	Cost int64
	// NotAfter, in µs on Redis's clock, is when the entry must no longer be
	// charged; 0 for always.
	NotAfter int64
	// Group, if not 0, ties neighbouring entries of the same group together: all
	// are charged or none. Their keys must differ, and on a Cluster share a slot.
	Group int
}

// Reply answers one entry.
type Reply struct {
	// Status is one of the status codes of package lua.
	Status int
	// Remaining is the number of units still free.
	Remaining int64
	// RetryAfter is when the same cost fits, NextAfter when a single unit does if
	// none does now, ResetAfter when the key is as good as new.
	RetryAfter, NextAfter, ResetAfter time.Duration
	// Clock is the deciding server's clock, in µs.
	Clock int64
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
	sum := sha1.Sum([]byte(source))
	return &Script{
		client: client,
		// A client of an unknown type may be a Cluster's: keeping to one slot a
		// call is right everywhere.
		bySlot: !oneNode,
		source: source,
		sha:    hex.EncodeToString(sum[:]),
	}
}

// chargeCmd is a command that go-redis must not send twice by itself, whatever
// the client's retry settings: it may have charged (law 3). Redirects (MOVED,
// ASK) are still followed; they prove that it has not run.
type chargeCmd struct{ *redis.Cmd }

// NoRetry tells go-redis.
func (chargeCmd) NoRetry() bool { return true }

// Run decides all entries, in order, and returns a reply for each. clock, if not
// 0, replaces Redis's clock (tests and replays only). The error is that of the
// whole call; where only a part of it failed, as on a Cluster with a node down,
// that part's replies carry an Err.
func (s *Script) Run(ctx context.Context, entries []Entry, clock int64) ([]Reply, error) {
	replies := make([]Reply, len(entries))
	parts := s.split(entries)
	cmds := make([]chargeCmd, len(parts))
	for i, part := range parts {
		cmds[i] = s.command(ctx, entries, part, clock)
	}
	s.send(ctx, cmds)

	// NOSCRIPT proves that nothing ran: load the script, send those again.
	var again []int
	for i, cmd := range cmds {
		if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
			again = append(again, i)
		}
	}
	if len(again) > 0 {
		if err := s.Load(ctx); err != nil {
			return nil, fmt.Errorf("loading the script: %w", err)
		}
		resend := make([]chargeCmd, len(again))
		for j, i := range again {
			resend[j] = s.command(ctx, entries, parts[i], clock)
			cmds[i] = resend[j]
		}
		s.send(ctx, resend)
	}

	failed := 0
	var err error
	for i, cmd := range cmds {
		if partErr := decode(cmd, parts[i], replies); partErr != nil {
			failed++
			err = partErr
			for _, e := range parts[i] {
				replies[e].Err = partErr
			}
		}
	}
	if failed == len(cmds) {
		return nil, err
	}
	return replies, nil
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
	var parts [][]int
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

func (s *Script) command(ctx context.Context, entries []Entry, part []int, clock int64) chargeCmd {
	args := make([]any, 0, 5+len(part)*(1+lua.EntryArgs+lua.RuleArgs))
	args = append(args, "evalsha", s.sha, len(part))
	for _, i := range part {
		args = append(args, entries[i].Key)
	}
	if clock == 0 {
		args = append(args, "")
	} else {
		args = append(args, clock)
	}

	// Each rule is described once, however many entries are held to it.
	rules := make([]*Rule, 0, 4)
	numbers := make([]int, len(part))
	for j, i := range part {
		numbers[j] = numberOf(&rules, entries[i].Rule)
	}
	args = append(args, len(rules))
	for _, rule := range rules {
		args = append(args, rule.args[:]...)
	}
	for j, i := range part {
		e := &entries[i]
		args = append(args, numbers[j], e.Cost, e.NotAfter, e.Group)
	}
	return chargeCmd{redis.NewCmd(ctx, args...)}
}

// numberOf is the rule's place in the list, counted from 1; it is added if new.
// Batches hold few different rules, so looking through them is fastest.
func numberOf(rules *[]*Rule, rule *Rule) int {
	for i, r := range *rules {
		if r == rule {
			return i + 1
		}
	}
	*rules = append(*rules, rule)
	return len(*rules)
}

// send runs the commands; each keeps its own error.
func (s *Script) send(ctx context.Context, cmds []chargeCmd) {
	if len(cmds) == 1 {
		_ = s.client.Process(ctx, cmds[0])
		return
	}
	pipe := s.client.Pipeline()
	for _, cmd := range cmds {
		_ = pipe.Process(ctx, cmd)
	}
	_, _ = pipe.Exec(ctx)
}

// Load puts the script into the script cache of every node that may need it.
// Any number of callers at once load it once.
func (s *Script) Load(ctx context.Context) error {
	_, err, _ := s.load.Do("", func() (any, error) {
		cluster, ok := s.client.(*redis.ClusterClient)
		if !ok {
			return nil, s.client.ScriptLoad(ctx, s.source).Err()
		}
		loaded := false
		err := cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			err := node.ScriptLoad(ctx, s.source).Err()
			loaded = loaded || err == nil
			return err
		})
		if loaded {
			return nil, nil // a node that is down must not keep the others from working
		}
		return nil, err
	})
	return err
}

var errReply = errors.New("the script's reply is not of the expected form")

// decode reads the reply of one call into the replies of its entries.
func decode(cmd chargeCmd, part []int, replies []Reply) error {
	values, err := cmd.Int64Slice()
	if err != nil {
		return err
	}
	if len(values) != 1+len(part)*lua.EntryReplies {
		return fmt.Errorf("%w: %d integers for %d entries", errReply, len(values), len(part))
	}
	for j, i := range part {
		v := values[1+j*lua.EntryReplies:]
		replies[i] = Reply{
			Status:     int(v[0]),
			Remaining:  v[1],
			RetryAfter: time.Duration(v[2]) * time.Microsecond,
			NextAfter:  time.Duration(v[3]) * time.Microsecond,
			ResetAfter: time.Duration(v[4]) * time.Microsecond,
			Clock:      values[0],
		}
	}
	return nil
}
