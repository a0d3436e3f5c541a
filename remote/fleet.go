package remote

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/lua"
)

// Fleet maintains this instance's membership in the fleet, and knows the fleet's size. It uses heartbeats in
// Redis, on Redis's clock. It is safe for concurrent use.
type Fleet struct {
	batcher  *Batcher // must know whether other instances share Redis
	script   *Script  // finds the server
	keyspace Keyspace
	place    atomic.Pointer[place]
	instance string
	ttl      time.Duration

	heartbeats atomic.Int64 // number sent
	size       atomic.Int64
	heard      atomic.Bool
}

var (
	fleetScript = lua.Fleet()
	fleetSHA    = redis.NewScript(fleetScript).Hash()
)

// place has the keys in which a fleet's membership is kept.
type place struct {
	key  string
	keys []any // of the script

	mu sync.Mutex // guards the rest
	// Before the local time until, the size does not fall below least, the size before a move or a loss. After a
	// move, other instances are counted only once they have moved, too. After Redis has lost the memberships,
	// they are counted only once they have sent a heartbeat.
	least int64
	until int64
	// generation, and answered, which is a Sequence, are those of the newest heartbeat that was answered.
	generation string
	answered   int64
	clock      int64 // of Redis at that heartbeat, in µs; 0: none was answered
	// renewed is the time on that clock by which every instance has renewed its membership since the clock last
	// stepped back.
	renewed int64
}

func (f *Fleet) newPlace(key string) *place {
	return &place{key: key, keys: []any{key, key + ":unsettled", key + ":generation", key + ":heartbeats:" + f.instance, key + ":lost"}}
}

// Heard is the result of a heartbeat.
type Heard struct {
	// Clock is Redis's clock, in µs.
	Clock int64
	// Took is how long the heartbeat took, without the delay with which this process read the answer; 0: unknown.
	Took time.Duration
	// Size is the number of instances that share the limits, and Unsettled the number of those that
	// have reported that they have not settled; both include this one.
	Size, Unsettled int
	// Generation is a random string that is stored in Redis and lasts as long as its data. If it differs from
	// an earlier one, Redis has lost all data. On a Cluster that is the data of the master that has the
	// fleet's slot.
	Generation string
	// Place is the key in which the membership is kept. Generation and Survived can be compared
	// only between heartbeats in the same place.
	Place string
	// Sequence is this heartbeat's number. Survived is the number of this instance's newest earlier heartbeat
	// that Redis remembers, or -1 if Redis remembers none. Redis remembers none at the first heartbeat, and,
	// while the generation stays, after HeartbeatLife without a heartbeat.
	//
	// If Survived is below the Sequence of a heartbeat that was answered, Redis has lost the data that was
	// written after heartbeat Survived, as in a failover to a replica that lagged behind. If Survived is -1
	// before that heartbeat's HeartbeatLife is over, the replica had no heartbeat of this instance. (Survived
	// may also be above that Sequence, if a heartbeat's reply was lost.)
	Sequence, Survived int64
	// Lost has the rules for which some instance has lost records.
	Lost []Loss
}

// Loss reports that an instance has granted units of a rule without Redis which will never be charged there,
// because the instance had no room to remember them. These units stay in the window of some key for at most
// For.
type Loss struct {
	Rule string // the rule's name, or AnyRule
	For  time.Duration
}

// AnyRule stands for all rules, if there are more rules than a heartbeat reports by name.
const AnyRule = "*"

// maxLost is the number of rules that a heartbeat reports by name.
const maxLost = 32

// NewFleet returns the membership of instance, which must be unique. An instance that has not sent a heartbeat
// for ttl no longer counts. assumed is the size used until Redis has reported the real size.
func NewFleet(batcher *Batcher, keys Keyspace, instance string, ttl time.Duration, assumed int) *Fleet {
	f := &Fleet{batcher: batcher, script: batcher.script, keyspace: keys, instance: instance, ttl: ttl}
	f.size.Store(int64(assumed))
	f.place.Store(f.newPlace(keys.fleetKey()))
	return f
}

// moves is the number of membership lifetimes within which all instances of a fleet have moved.
const moves = 3

// MoveTo keeps the membership in the given slot of a Cluster from now on. All instances that share the limits
// there must use the same slot. size, if not 0, is the fleet's size as known from another source.
func (f *Fleet) MoveTo(slot uint16, size int) {
	p := f.newPlace(f.keyspace.fleetKeyIn(slot))
	p.least = int64(size)
	p.until = localTime() + moves*f.ttl.Microseconds()
	f.place.Store(p)
	f.size.Store(max(f.size.Load(), p.least))
}

// Size returns the number of instances that Redis reported last, or the assumed number. It is at least 1.
func (f *Fleet) Size() int { return int(f.size.Load()) }

// Heard reports whether Redis has reported the size yet.
func (f *Fleet) Heard() bool { return f.heard.Load() }

// Heartbeat renews the membership and reads the fleet's size and Redis's clock. unsettled reports to the other
// instances that this one has grants that are not charged in Redis yet; it is valid until the next heartbeat,
// or until the membership ends. lost has the rules for which this instance has lost records; each Loss is
// valid for its For, even if this instance ends.
//
// A heartbeat needs everything of Redis that a decision needs, so it is also the limiter's health check.
func (f *Fleet) Heartbeat(ctx context.Context, unsettled bool, lost ...Loss) (Heard, error) {
	p := f.place.Load()
	to, sent := f.script.nodeOf(ctx, p.key), localTime()
	heard, by, err := f.run(ctx, to, p, f.ttl, unsettled, lost)
	if errors.Is(err, redis.Nil) { // of Sentinel's client, which says that the Sentinels are unreachable
		err = fmt.Errorf("a Sentinel knows no master of this name (MasterName): %w", err)
	}
	if err != nil {
		return Heard{}, fmt.Errorf("heartbeat: %w", err)
	}
	if by != nil {
		heard.Took = microseconds(by.clocks.observe(p.key, heard.Clock, sent, localTime()))
	}
	heard.Size, heard.Place = p.size(&heard, f.size.Load(), localTime(), f.ttl), p.key
	f.size.Store(int64(heard.Size))
	f.heard.Store(true)
	f.batcher.setProcesses(heard.Size)
	return heard, nil
}

// size returns the fleet's size after a heartbeat; before is the size after the previous one. If Redis has lost
// the memberships since then, instances that have not sent a heartbeat yet are not counted there. The few
// counted instances must not be taken for the whole fleet: if Redis were lost again now, each of them would
// have a large share of every limit (law 11). So the size does not fall until all earlier memberships have
// ended.
func (p *place) size(heard *Heard, before, now int64, ttl time.Duration) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if lost := heard.Generation != p.generation || heard.Survived < p.answered && p.answered < heard.Sequence; lost && p.generation != "" {
		p.least, p.until = before, now+ttl.Microseconds()
	}
	p.generation, p.answered = heard.Generation, heard.Sequence
	if p.clock == 0 || heard.Clock < p.clock {
		p.renewed = heard.Clock + ttl.Microseconds()
	}
	p.clock = heard.Clock
	if now < p.until {
		return max(1, heard.Size, int(p.least))
	}
	return max(1, heard.Size)
}

// allRenewed returns the time on Redis's clock from which on memberships from before a step back of that clock are
// those of instances that have ended. If the clock is behind that time, it may just have stepped back.
func (p *place) allRenewed() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.clock == 0 {
		return math.MaxInt64
	}
	return max(p.renewed, p.clock)
}

// IsMoving reports whether a command failed because a slot is moving from one master of a Cluster to another, so
// that the command's keys are split between the two, or neither decides them. Both masters answer, and keys of
// other slots are decided.
func IsMoving(err error) bool {
	return redis.HasErrorPrefix(err, "TRYAGAIN") || errors.Is(err, errRedirectLoop)
}

// HeartbeatLife returns how long Redis remembers a heartbeat, given its Sequence: a minute for each heartbeat
// so far, and at most a day, see fleet.lua.
func HeartbeatLife(sequence int64) time.Duration {
	return time.Duration(min(max(1, sequence), 24*60)) * time.Minute
}

// Leave ends the membership at once, instead of after the ttl.
func (f *Fleet) Leave(ctx context.Context) error {
	p := f.place.Load()
	if _, _, err := f.run(ctx, f.script.nodeOf(ctx, p.key), p, 0, false, nil); err != nil {
		return fmt.Errorf("tierlimit: leaving the fleet failed (other instances count this one for a few seconds more): %w", err)
	}
	return nil
}

// heartbeatCmd is a heartbeat. go-redis must not resend it, because the second sending would find the sequence
// of the first. The next heartbeat makes up for a lost one.
type heartbeatCmd struct{ *redis.SliceCmd }

// NoRetry tells go-redis not to resend the command.
func (heartbeatCmd) NoRetry() bool { return true }

// run sends a heartbeat to a node. If the node is nil or redirects, run sends the heartbeat by the Cluster's
// client. It returns the node if that node answered.
func (f *Fleet) run(ctx context.Context, to *node, p *place, ttl time.Duration, unsettled bool, lost []Loss) (Heard, *node, error) {
	heard := Heard{Sequence: f.heartbeats.Add(1)}
	args := append([]any{"evalsha", fleetSHA, len(p.keys)}, p.keys...)
	// The proposed generation is new each time: an earlier proposal might be the generation that was lost.
	args = append(args, f.instance, ttl.Microseconds(), heard.Sequence, unsettled, rand.Text(), p.allRenewed())
	if len(lost) > maxLost {
		lost = []Loss{{AnyRule, slices.MaxFunc(lost, func(a, b Loss) int { return cmp.Compare(a.For, b.For) }).For}}
	}
	for _, loss := range lost {
		args = append(args, loss.Rule, loss.For.Microseconds())
	}
	cmd, by := f.send(ctx, to, args)
	if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
		// Heartbeats are rare: EVAL loads the script on the node that needs it.
		args[0], args[1] = "eval", fleetScript
		cmd, by = f.send(ctx, by, args)
	}
	values, err := cmd.Result()
	if err != nil {
		f.script.reload(ctx)
		return Heard{}, nil, readable(err)
	}
	if !heard.read(values) {
		return Heard{}, nil, fmt.Errorf("%w: %v", errReply, values)
	}
	// If the number in Redis is larger because it is damaged, later heartbeats must use still larger numbers.
	// Otherwise Redis would ignore them.
	for sent := f.heartbeats.Load(); sent < heard.Survived && !f.heartbeats.CompareAndSwap(sent, heard.Survived); {
		sent = f.heartbeats.Load()
	}
	return heard, by, nil
}

// send sends a heartbeat with these arguments, in the way described at run.
func (f *Fleet) send(ctx context.Context, to *node, args []any) (cmd heartbeatCmd, by *node) {
	if to != nil {
		cmd = heartbeatCmd{redis.NewSliceCmd(ctx, args...)}
		if err := to.withoutHeld().send(ctx, cmd); err == nil || f.script.only != nil || !isRedirected(err) {
			return cmd, to
		}
		f.script.reload(ctx)
	}
	cmd = heartbeatCmd{redis.NewSliceCmd(ctx, args...)}
	_ = f.script.client.Process(ctx, cmd)
	markRedirectLoop(cmd)
	return cmd, nil
}

// read decodes the script's reply; fleet.lua describes it.
func (h *Heard) read(values []any) (ok bool) {
	if len(values) != 6 {
		return false
	}
	var numbers [5]int64
	for i, v := range values[:5] {
		if numbers[i], ok = v.(int64); !ok && i != 3 {
			return false
		}
	}
	h.Clock, h.Size, h.Unsettled, h.Survived = numbers[0], int(numbers[1]), int(numbers[2]), numbers[4]
	if h.Generation, ok = values[3].(string); !ok {
		return false
	}
	lost, ok := values[5].([]any)
	for i := 0; ok && i+1 < len(lost); i += 2 {
		rule, isName := lost[i].(string)
		µs, isNumber := lost[i+1].(int64)
		ok = isName && isNumber
		h.Lost = append(h.Lost, Loss{rule, microseconds(µs)})
	}
	return ok
}
