package remote

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/lua"
)

// Fleet keeps this instance's membership of the fleet, and the fleet's size, by
// heartbeats in Redis on Redis's clock. It is safe for concurrent use.
type Fleet struct {
	client   redis.UniversalClient
	keyspace Keyspace
	place    atomic.Pointer[place]
	instance string
	ttl      time.Duration
	source   string
	sha      string
	clocks   *clocks

	heartbeats atomic.Int64 // sent
	size       atomic.Int64
	heard      atomic.Bool
}

// place is where a fleet's membership is kept.
type place struct {
	key  string
	keys []any // of the script
	// After a move others will be heard of only when they have moved, too: until then, in
	// local time, the size does not fall below that from before.
	least int64
	until int64
}

func (f *Fleet) newPlace(key string) *place {
	return &place{key: key, keys: []any{key, key + ":unsettled", key + ":generation", key + ":heartbeats:" + f.instance, key + ":lost"}}
}

// Heard is what a heartbeat learns.
type Heard struct {
	// Clock is Redis's clock, in µs.
	Clock int64
	// Size is the number of instances that share the limits, Unsettled how many of them
	// have said that they have not settled; this one included.
	Size, Unsettled int
	// Generation names Redis's memory: a random string that lasts as long as that does.
	// Another one than was heard before means that Redis has forgotten everything. On a
	// Cluster it speaks for the master that has the fleet's slot only.
	Generation string
	// Place is the key that the membership is kept in. Heartbeats in different places say
	// nothing of each other's memory.
	Place string
	// Sequence is this heartbeat's number. Survived is the number of this instance's newest
	// heartbeat before it that Redis remembers, -1 if it remembers none, which is so at the
	// first and, while the generation stays, after a day without a heartbeat.
	//
	// A Survived below the Sequence of a heartbeat that was heard means that Redis has lost
	// what was written after the heartbeat Survived, as by a failover to a replica that lagged
	// behind. (It may also be above, where a heartbeat's reply was lost.)
	Sequence, Survived int64
	// Lost is the rules of which some instance has lost records.
	Lost []Loss
}

// Loss says that an instance has granted units of a rule without Redis that will never be charged
// there, because it had no room to remember them. They are in the window of some key for that
// long yet.
type Loss struct {
	Rule string // its name, or AnyRule
	For  time.Duration
}

// AnyRule stands for all rules, in place of more of them than a heartbeat tells by name.
const AnyRule = "*"

// mostLost is how many rules a heartbeat tells by name.
const mostLost = 32

// NewFleet returns the membership of instance, which must be unique. An instance
// not heard of for ttl no longer counts. assumed is the size taken until Redis
// has told the real one.
func NewFleet(batcher *Batcher, keys Keyspace, instance string, ttl time.Duration, assumed int) *Fleet {
	source := lua.Fleet()
	f := &Fleet{
		client:   batcher.script.client,
		keyspace: keys,
		instance: instance,
		ttl:      ttl,
		source:   source,
		sha:      redis.NewScript(source).Hash(),
		clocks:   batcher.clocks,
	}
	f.size.Store(int64(assumed))
	f.place.Store(f.newPlace(keys.fleetKey()))
	return f
}

// moves is how many lifetimes of a membership all instances of a fleet have moved in.
const moves = 3

// MoveTo keeps the membership in a slot of a Cluster from now on: as all instances must
// that share what is there. size, if not 0, is that of the fleet as known from elsewhere.
func (f *Fleet) MoveTo(slot uint16, size int) {
	p := f.newPlace(f.keyspace.fleetKeyIn(slot))
	p.least = int64(size)
	p.until = localTime() + moves*f.ttl.Microseconds()
	f.place.Store(p)
	f.size.Store(max(f.size.Load(), p.least))
}

// Size is the number of instances: the last one heard, or the assumed one. It is
// at least 1.
func (f *Fleet) Size() int { return int(f.size.Load()) }

// Heard reports whether Redis has told the size yet.
func (f *Fleet) Heard() bool { return f.heard.Load() }

// Heartbeat renews the membership and learns the fleet's size and Redis's clock. unsettled
// tells the others that this instance holds grants which are not charged to Redis yet; it
// counts until a heartbeat that says otherwise, or as long as the membership. lost tells them of
// which rules it has lost records; that counts as long as it says, whatever becomes of the
// instance.
//
// Needing all that a decision needs of Redis, it is also the limiter's ping.
func (f *Fleet) Heartbeat(ctx context.Context, unsettled bool, lost ...Loss) (Heard, error) {
	p, sent := f.place.Load(), localTime()
	heard, err := f.run(ctx, p, f.ttl, unsettled, lost)
	if err != nil {
		return Heard{}, fmt.Errorf("heartbeat: %w", err)
	}
	f.clocks.observe(p.key, heard.Clock, sent, localTime())
	heard.Size, heard.Place = max(1, heard.Size), p.key
	if localTime() < p.until {
		heard.Size = max(heard.Size, int(p.least))
	}
	f.size.Store(int64(heard.Size))
	f.heard.Store(true)
	return heard, nil
}

// IsMoving reports whether a heartbeat failed because the fleet's slot is on its way from one
// master of a Cluster to another, so that its keys are apart. Both answer.
func IsMoving(err error) bool { return redis.HasErrorPrefix(err, "TRYAGAIN") }

// Leave ends the membership at once, instead of after the ttl.
func (f *Fleet) Leave(ctx context.Context) error {
	if _, err := f.run(ctx, f.place.Load(), 0, false, nil); err != nil {
		return fmt.Errorf("leaving the fleet: %w", err)
	}
	return nil
}

// heartbeatCmd is a heartbeat. go-redis must not send it twice by itself: the second would find the
// sequence of the first. A lost heartbeat is made up for by the next one.
type heartbeatCmd struct{ *redis.SliceCmd }

// NoRetry tells go-redis.
func (heartbeatCmd) NoRetry() bool { return true }

func (f *Fleet) run(ctx context.Context, p *place, ttl time.Duration, unsettled bool, lost []Loss) (Heard, error) {
	flag := 0
	if unsettled {
		flag = 1
	}
	heard := Heard{Sequence: f.heartbeats.Add(1)}
	args := append([]any{"evalsha", f.sha, len(p.keys)}, p.keys...)
	// The generation is a new one each time: one made before might be that which was lost.
	args = append(args, f.instance, ttl.Microseconds(), heard.Sequence, flag, rand.Text())
	if len(lost) > mostLost {
		lost = []Loss{{AnyRule, slices.MaxFunc(lost, func(a, b Loss) int { return cmp.Compare(a.For, b.For) }).For}}
	}
	for _, loss := range lost {
		args = append(args, loss.Rule, loss.For.Microseconds())
	}
	cmd := heartbeatCmd{redis.NewSliceCmd(ctx, args...)}
	_ = f.client.Process(ctx, cmd)
	if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
		// Heartbeats are rare: EVAL loads the script on the node that needs it.
		args[0], args[1] = "eval", f.source
		cmd = heartbeatCmd{redis.NewSliceCmd(ctx, args...)}
		_ = f.client.Process(ctx, cmd)
	}
	values, err := cmd.Result()
	if err != nil {
		reloadCluster(ctx, f.client)
		return Heard{}, err
	}
	if !heard.read(values) {
		return Heard{}, fmt.Errorf("%w: %v", errReply, values)
	}
	// Should what Redis keeps be larger, because it is damaged, later heartbeats must be larger still,
	// or they would count for nothing.
	for sent := f.heartbeats.Load(); sent < heard.Survived && !f.heartbeats.CompareAndSwap(sent, heard.Survived); {
		sent = f.heartbeats.Load()
	}
	return heard, nil
}

// read reads the script's reply; fleet.lua describes it.
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
		h.Lost = append(h.Lost, Loss{rule, time.Duration(µs) * time.Microsecond})
	}
	return ok
}
