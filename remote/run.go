package remote

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/lua"
)

// run is one run of the script over a batch: a command for each part.
type run struct {
	client  redis.UniversalClient
	entries []Entry
	parts   [][]int
	clock   int64
	cmds    []chargeCmd
}

// chargeCmd is a command that go-redis must not send twice by itself, whatever
// the client's retry settings: it may have charged (law 3). Redirects (MOVED,
// ASK) are still followed; they prove that it has not run.
type chargeCmd struct{ *redis.Cmd }

// NoRetry tells go-redis.
func (chargeCmd) NoRetry() bool { return true }

// send runs the parts named in which; verb and script are EVALSHA and the
// script's digest, or EVAL and its source. Each command keeps its reply or error.
func (r *run) send(ctx context.Context, which []int, verb, script string) {
	for _, i := range which {
		r.cmds[i] = r.command(ctx, r.parts[i], verb, script)
	}
	if len(which) == 1 {
		_ = r.client.Process(ctx, r.cmds[which[0]])
		return
	}
	pipe := r.client.Pipeline()
	for _, i := range which {
		_ = pipe.Process(ctx, r.cmds[i])
	}
	_, _ = pipe.Exec(ctx)
}

// withoutScript is the parts whose command found no script to run.
func (r *run) withoutScript() (parts []int) {
	for i, cmd := range r.cmds {
		if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
			parts = append(parts, i)
		}
	}
	return parts
}

// command calls the script for the entries of a part; frame.lua describes the
// arguments.
func (r *run) command(ctx context.Context, part []int, verb, script string) chargeCmd {
	args := make([]any, 0, 5+len(part)*6+lua.RuleArgs)
	args = append(args, verb, script, len(part))
	for _, i := range part {
		args = append(args, r.entries[i].Key)
	}
	if r.clock == 0 {
		args = append(args, "")
	} else {
		args = append(args, r.clock)
	}

	// Each rule is described once, however many entries are held to it.
	rules := make([]*Rule, 0, 4)
	numbers := make([]int, len(part))
	for j, i := range part {
		numbers[j] = numberOf(&rules, r.entries[i].Rule)
	}
	args = append(args, len(rules))
	for _, rule := range rules {
		args = append(args, rule.at(r.clock)[:]...)
	}
	for j, i := range part {
		e := &r.entries[i]
		args = append(args, e.operation(), numbers[j], e.NotAfter, e.Group, e.Cost)
		if e.Operation == lua.Refund {
			args = append(args, e.Charged, e.Stamp)
		}
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

// replies reads all replies. Its error is that of the last part if all failed.
func (r *run) replies() ([]Reply, error) {
	replies := make([]Reply, len(r.entries))
	failed := 0
	var err error
	for i, cmd := range r.cmds {
		if partErr := decode(cmd, r.parts[i], replies); partErr != nil {
			failed++
			err = partErr
			for _, e := range r.parts[i] {
				replies[e].Err = partErr
			}
		}
	}
	if failed == len(r.cmds) {
		return nil, err
	}
	return replies, nil
}

var errReply = errors.New("the script's reply is not of the expected form")

// decode reads the reply of one command into the replies of its entries.
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
			Granted:    v[1],
			Remaining:  v[2],
			RetryAfter: time.Duration(v[3]) * time.Microsecond,
			NextAfter:  time.Duration(v[4]) * time.Microsecond,
			ResetAfter: time.Duration(v[5]) * time.Microsecond,
			Stamp:      v[6],
			Clock:      values[0],
		}
	}
	return nil
}
