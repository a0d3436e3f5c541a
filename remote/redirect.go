package remote

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"
)

// isRedirected reports whether a node of a Cluster refused a command because another node has the key, or
// whether the Cluster's client has closed the client of a node that has left. Both prove that the command did
// not run.
func isRedirected(err error) bool {
	return redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK") || errors.Is(err, redis.ErrClosed)
}

// errRedirectLoop means that the nodes of a Cluster sent a command on to one another until its client gave up. None of
// them decides keys of the slot then, for example because only one of them knows that the slot is moving.
var errRedirectLoop = errors.New("the Cluster's nodes redirect the command to one another")

// markRedirectLoop marks the error of a command that the Cluster's client sent, and that is still redirected.
func markRedirectLoop(cmd redis.Cmder) {
	if err := cmd.Err(); redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK") {
		cmd.SetErr(fmt.Errorf("%w: %w", errRedirectLoop, err))
	}
}

// redirected returns the parts that a node of a Cluster redirected. From then on, the Cluster's client sends
// all parts that are sent again.
func (r *run) redirected() (again []int) {
	if r.node == nil || r.script.only != nil {
		return nil
	}
	if again = r.failed(isRedirected); again != nil {
		r.from, r.node = r.node, nil
	}
	return again
}

// sendByCluster does what send does by the Cluster's client, which finds the nodes and follows redirections.
// The client may take longer than ctx lasts: then it is left behind with copies of the entries, and the parts
// get an error.
func (r *run) sendByCluster(ctx context.Context, which []int, by invocation) {
	cmds := make([]redis.Cmder, len(which))
	for j, i := range which {
		p := &r.parts[i]
		entries := slices.Clone(p.entries)
		r.script.nodes.expireAnywhere(entries, r.from)
		p.redirected = true
		p.cmd = command(ctx, entries, r.clock, by)
		cmds[j] = p.cmd
	}
	r.script.nodes.changed.Store(true)
	returned := r.script.nodes.detached.run(ctx, func() { _ = send(ctx, r.script.client, cmds) })
	for _, i := range which {
		p := &r.parts[i]
		if !returned {
			p.cmd = chargeCmd{redis.NewStringCmd(ctx)}
			p.cmd.SetErr(context.DeadlineExceeded)
		}
		markRedirectLoop(p.cmd)
	}
}

// expireAnywhere converts not-afters from the clock of a node to the clock that is furthest behind of all
// nodes, since another node will decide.
func (ns *nodes) expireAnywhere(entries []Entry, from *node) {
	if from == nil {
		return
	}
	now := localTime()
	own, anywhere := from.clocks.notAfter("", now), ns.notAfter(now)
	if own == 0 || anywhere == 0 { // from's clock is not known: the not-afters are already on the furthest-behind clock
		return
	}
	earlier := own - anywhere
	for i := range entries {
		if e := &entries[i]; e.NotAfter > 0 {
			e.NotAfter -= earlier
		}
	}
}

// notAfter converts a local deadline to the clock of the node that is furthest behind. It returns 0 if no
// clock is known.
func (ns *nodes) notAfter(deadline int64) (earliest int64) {
	ns.known.Range(func(_, known any) bool {
		if t := known.(*node).clocks.notAfter("", deadline); t > 0 && (earliest == 0 || t < earliest) {
			earliest = t
		}
		return true
	})
	return earliest
}
