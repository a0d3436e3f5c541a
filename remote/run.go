package remote

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/lua"
)

// run is one run of the script over a batch: a command for each part.
type run struct {
	script *Script
	node   *node // nil: the Cluster's client finds the node of each part
	from   *node // the node that redirected parts; nil: none did
	parts  []part
	clock  int64
}

// part has the entries of one command, and their positions in the batch.
type part struct {
	entries   []Entry
	positions []int
	cmd       chargeCmd // as it was sent last
	// redirected means that the Cluster's client sent the part. That client follows redirections, so it is not
	// known which node answered.
	redirected bool
}

// chargeCmd is a command that go-redis must not resend, whatever the client's retry settings, because it may
// have charged (law 3). Redirects (MOVED, ASK) are still followed, because they prove that the command has not
// run.
type chargeCmd struct{ *redis.StringCmd }

// NoRetry tells go-redis not to resend the command.
func (chargeCmd) NoRetry() bool { return true }

// send runs the parts listed in which. by is FCALL and the function's name, EVALSHA and the script's digest, or
// EVAL and the script's source. Each command keeps its reply or error.
func (r *run) send(ctx context.Context, which []int, by invocation) {
	if r.node == nil {
		r.sendByCluster(ctx, which, by)
		return
	}
	cmds := make([]redis.Cmder, len(which))
	for j, i := range which {
		p := &r.parts[i]
		p.cmd = command(ctx, p.entries, r.clock, by)
		cmds[j] = p.cmd
	}
	_ = r.node.send(ctx, cmds...)
}

// failed returns the parts whose command failed with an error for which as returns true.
func (r *run) failed(as func(error) bool) (parts []int) {
	for i := range r.parts {
		if err := r.parts[i].cmd.Err(); err != nil && as(err) {
			parts = append(parts, i)
		}
	}
	return parts
}

// divideTorn divides the parts that a Cluster answered with TRYAGAIN: their slot is moving, and their keys are
// split between two nodes. That proves that nothing ran. Each entry gets a part of its own, since a single key is
// always found. The entries of a group stay together, and fail while their keys are split. So does an entry with a
// second key, such as a lease. divideTorn returns the parts to send again.
func (r *run) divideTorn() (again []int) {
	for i := range r.parts { // without those that are appended
		torn := r.parts[i]
		if !redis.HasErrorPrefix(torn.cmd.Err(), "TRYAGAIN") {
			continue
		}
		pieces := grouped(len(torn.entries), func(j int) int {
			if group := torn.entries[j].Group; group != 0 {
				return -group
			}
			return j
		})
		if len(pieces) == 1 {
			continue
		}
		r.parts[i] = torn.some(pieces[0])
		again = append(again, i)
		for _, piece := range pieces[1:] {
			again = append(again, len(r.parts))
			r.parts = append(r.parts, torn.some(piece))
		}
	}
	return again
}

// some returns a part with some of p's entries, given by their indices in p.
func (p *part) some(of []int) part {
	q := part{entries: make([]Entry, len(of)), positions: of}
	for i, j := range of {
		q.entries[i], q.positions[i] = p.entries[j], p.positions[j]
	}
	return q
}

// grouped returns the numbers 0 to n-1 in groups of the same key. The groups are in the order of their
// first numbers.
func grouped[K comparable](n int, key func(i int) K) (groups [][]int) {
	groupOf := make(map[K]int)
	for i := range n {
		k := key(i)
		at, seen := groupOf[k]
		if !seen {
			at = len(groups)
			groupOf[k] = at
			groups = append(groups, nil)
		}
		groups[at] = append(groups[at], i)
	}
	return groups
}

// command returns the command that runs the script for entries; frame.lua describes the arguments.
func command(ctx context.Context, entries []Entry, clock int64, by invocation) chargeCmd {
	args := append(make([]any, 0, 5+len(entries)), by[0], by[1], nil)
	holdsToo := false // the key of the holds is among the arguments
	for i := range entries {
		e := &entries[i]
		switch name := e.redisKey(); {
		case i == 0:
			args = append(args, name) // readable for hooks such as tracing
		case !e.sameKey(&entries[i-1]):
			args = append(args, &e.name) // a pointer saves an allocation for each key
			holdsToo = false
		}
		if e.Operation == lua.Lease {
			args = append(args, leaseKey(e.redisKey()))
		}
		if e.usesHolds() && !holdsToo {
			if e.holdsName == "" {
				e.holdsName = holdsKey(e.redisKey())
			}
			args = append(args, &e.holdsName)
			holdsToo = true
		}
	}
	for i := len(entries) - 1; i >= 0; i-- {
		if e := &entries[i]; e.Operation == lua.Charge {
			args = append(args, markerKey(e.redisKey(), e.Marker))
		}
	}
	args[2] = len(args) - 3
	if len(entries) == 1 && clock == 0 {
		args = append(args, entries[0].Rule.text(), packSingle(&entries[0]))
	} else {
		args = append(args, pack(entries, clock))
	}
	return chargeCmd{redis.NewStringCmd(ctx, args...)}
}

// replies reads all replies. If all parts failed, it returns an error that is true for all of them: if some
// part may have run, an error that says so (law 3). (If one part of go-redis's pipeline fails and cannot be
// sent again in time, parts that were answered get that error, too. So one part may have charged although the
// error is another part's refused connection.)
func (r *run) replies(entries int) ([]Reply, error) {
	replies := make([]Reply, entries)
	failed := 0
	var err error
	for i := range r.parts {
		if partErr := r.parts[i].read(replies); partErr != nil {
			failed++
			if err == nil || MayHaveRun(partErr) {
				err = partErr
			}
		}
	}
	if failed == len(r.parts) {
		return nil, err
	}
	return replies, nil
}

// read puts the part's replies into their places. If the part failed, each reply has its error.
func (p *part) read(replies []Reply) error {
	own := make([]Reply, len(p.entries))
	err := readable(p.cmd.Err())
	if err == nil {
		err = decode(p.cmd.Val(), p.entries, own)
	}
	for i := range own {
		if err != nil {
			own[i] = Reply{Err: err}
		}
		if p.redirected {
			own[i].Clock = 0 // it is not known which node's clock it is
			for j := range own[i].each() {
				own[i].each()[j].Clock = 0
			}
		}
		replies[p.positions[i]] = own[i]
	}
	return err
}
