package lease

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tierlimit/tierlimit/internal/outage"
	"github.com/tierlimit/tierlimit/internal/wake"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/local"
	"github.com/tierlimit/tierlimit/local/ledger"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

const (
	// leasedKeys is the number of keys for which a process can have leases or measure demand at the same
	// time. Each key takes 40 bytes, once there is a rule with leases.
	leasedKeys = 8192
	// maxRenewals is the number of leases that may be requested at the same time. Further keys are
	// decided in Redis.
	maxRenewals = 64
	// returnedAtOnce is the number of leases that are given back at the same time. They share trips.
	returnedAtOnce = 128
	// endIdleEvery is how often unused leases are ended, while there are leases.
	endIdleEvery = 50 * time.Millisecond
)

// Rule has the properties of a rule that its leases need. It is immutable.
type Rule struct {
	*Terms
	Outage *outage.Rule
	// ForgetDenial is called with the hash of a key when units of the key were given back.
	ForgetDenial func(hash uint64)
}

// Keeper has the leases of all rules of a limiter. A Keeper is safe for concurrent use.
type Keeper struct {
	shards       *outage.Shards
	virtual      bool
	notGivenBack func(error)
	trips        sync.WaitGroup

	mu       sync.Mutex           // guards the fields below
	table    *local.Leases[*Rule] // nil until a rule needs it; does not change after that
	wake     wake.Signal          // sent when there are leases; made with table
	underWay int
	closing  context.Context // context of Close; nil before Close
}

// New returns a keeper without leases. virtual says that the shards' time is not real time; the keeper
// then does all work in the calling goroutines. notGivenBack is called with the reason why unspent units
// stay charged. It may be called from several goroutines at the same time.
func New(shards *outage.Shards, virtual bool, notGivenBack func(error)) *Keeper {
	return &Keeper{shards: shards, virtual: virtual, notGivenBack: notGivenBack}
}

// Begin prepares the keeper for rules with leases. It must be called before other methods.
func (k *Keeper) Begin() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.table == nil {
		k.table, k.wake = local.NewLeases[*Rule](leasedKeys), wake.NewSignal()
		if !k.virtual && k.closing == nil {
			k.shards.Go(k.keep)
		}
	}
}

// begin permits one more trip for leases; end must be called after it. It returns false if there are
// enough trips, or if the keeper is closed.
func (k *Keeper) begin() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closing != nil || k.underWay == maxRenewals {
		return false
	}
	k.underWay++
	k.trips.Add(1)
	return true
}

func (k *Keeper) end() {
	k.mu.Lock()
	k.underWay--
	k.mu.Unlock()
	k.trips.Done()
}

// Spend takes units of the lease of a key; see [local.Leases.Spend].
func (k *Keeper) Spend(r *Rule, hash uint64, now, needed, cost int64) (local.Spent, bool) {
	if k.virtual {
		k.endIdle() // no background goroutine does so in virtual time
	}
	return k.table.Spend(hash^r.Salt, now, needed, cost)
}

// Granted records a grant by Redis, and requests a lease if one is worthwhile.
func (k *Keeper) Granted(r *Rule, hash uint64, key remote.UserKey, granted int64) {
	want := k.table.Wanted(hash^r.Salt, k.shards.Now(), granted, r.Life, r.Most)
	if want == 0 {
		return
	}
	if !k.begin() {
		k.table.Refused(hash^r.Salt, k.shards.Now()+int64(r.Life))
		return
	}
	q := outage.Request{Rule: r.Outage, Hash: hash, Key: key, Cost: want, Operation: lua.Lease}
	renew := func() {
		defer k.end()
		k.renew(r, &q)
	}
	if k.virtual {
		renew()
		return
	}
	go renew() // Close waits for the goroutine's end
}

// renew requests a lease. It ends the key's present lease, if there is one.
func (k *Keeper) renew(r *Rule, q *outage.Request) {
	hash := q.Hash ^ r.Salt
	terms := remote.Lease{ID: k.table.NextID(), Most: r.Most, Reserve: r.Reserve, Life: r.Life}
	var entries []remote.Entry
	if old, ok := k.table.End(hash); ok {
		terms.Over = old.ID
		if old.Left > 0 {
			k.unrecord(&old)
			entries = append(entries, unspent(&old))
		}
	}
	entries = append(entries, remote.Entry{Key: string(q.Key), Rule: r.Outage.Encoded, Operation: lua.Lease, Cost: q.Cost, Lease: &terms})
	sent := k.shards.Now()
	sent -= sent % int64(time.Microsecond) // Redis may have read its clock at this very moment
	// This trip is not bound to a caller's deadline: units charged in advance must not be lost when the
	// caller's call ends.
	s := k.shards.Of(q.Key)
	replies, err := s.DecideAll(context.Background(), entries, k.shards.Deadline)
	if len(entries) > 1 {
		r.ForgetDenial(q.Hash) // units were given back, or may have been
	}
	now := k.shards.Now()
	if err != nil {
		k.table.Refused(hash, now+int64(r.Life))
		return
	}
	reply := &replies[len(replies)-1]
	if reply.Err != nil || reply.Granted == 0 {
		k.table.Refused(hash, now+int64(r.Life)/4)
		return
	}
	s.Used(q, reply.Granted, true) // whether or not they are spent, as in Redis
	lease := local.Lease[*Rule]{
		ID: terms.ID, Key: strings.Clone(string(q.Key)), Hash: q.Hash, Owner: r,
		Units: reply.Granted, Stamp: reply.Stamp,
		Asked: sent, Ends: sent + int64(reply.Life-reply.Life/Drift),
		Free: reply.Remaining, Reset: sent + int64(reply.ResetAfter),
	}
	k.table.Hold(hash, now, lease)
	k.wake.Send()
}

// keep runs in the background, and gives back unused leases. A round of it counts as one request for a
// lease. So the first round does not come as soon as the first lease is granted, when other leases may be
// requested.
func (k *Keeper) keep() {
	held := false // whether there were leases in the last round
	k.wake.Run(k.shards.Context, func() (pause time.Duration) {
		if held {
			k.endIdle()
		}
		if held = k.table.Held() > 0; held {
			return endIdleEvery
		}
		return 0
	})
}

func (k *Keeper) endIdle() {
	if k.begin() {
		defer k.end()
		k.giveBack(k.table.EndIdle(k.shards.Now()))
	}
}

// Close gives all leases back, until ctx ends (law 12). No lease is granted afterwards.
func (k *Keeper) Close(ctx context.Context) {
	k.mu.Lock()
	k.closing = ctx
	table := k.table
	k.mu.Unlock()
	k.trips.Wait()
	if table != nil {
		k.giveBack(table.EndAll())
	}
}

// giveBack returns the unspent units of leases to Redis. If Redis is lost, or the time of Close is over,
// the units stay charged there until they leave the window.
func (k *Keeper) giveBack(ended []local.Ended[*Rule]) {
	for i := range ended {
		k.unrecord(&ended[i])
	}
	for some := range slices.Chunk(ended, returnedAtOnce) {
		if err := k.late(); err != nil {
			k.notGivenBack(err)
			return
		}
		var returns sync.WaitGroup
		for i := range some {
			e := &some[i]
			s := k.shards.Of(remote.UserKey(e.Key))
			if !s.Breaker.Closed() {
				continue
			}
			returns.Go(func() {
				if _, err := s.Decide(context.Background(), unspent(e)); err != nil {
					k.notGivenBack(err)
					return
				}
				e.Owner.ForgetDenial(e.Hash)
			})
		}
		returns.Wait()
	}
}

// late returns an error once the time of Close is over.
func (k *Keeper) late() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closing == nil {
		return nil
	}
	return k.closing.Err()
}

// unrecord removes the unspent units of a lease from the ledger, where Redis removes them: the oldest units of a log,
// and otherwise those of the lease. It runs before Redis is asked to do so, because this instance's record may have
// less than Redis, but never more.
func (k *Keeper) unrecord(e *local.Ended[*Rule]) {
	key, granted := remote.UserKey(e.Key), e.Asked
	if e.Owner.Outage.Latest().Algorithm.Same(limit.SlidingLog()) {
		granted = ledger.Oldest
	}
	q := outage.Request{Rule: e.Owner.Outage, Hash: e.Hash, Key: key}
	k.shards.ChargeLost(&q) // Redis may take the units off what was charged since it lost them
	k.shards.Of(key).Returned(&q, granted, e.Left, false)
}

// unspent returns the entry that refunds the unspent units of a lease.
func unspent(e *local.Ended[*Rule]) remote.Entry {
	return remote.Entry{
		Key: e.Key, Rule: e.Owner.Outage.Latest().Encoded, Operation: lua.Refund,
		Cost: e.Left, Charged: e.Units, Stamp: e.Stamp,
	}
}

// Drop forgets the lease of a key after the key's state in Redis was reset.
func (k *Keeper) Drop(r *Rule, hash uint64) { k.table.End(hash ^ r.Salt) }

// Left returns the number of leased units that have not been spent.
func (k *Keeper) Left() int64 {
	k.mu.Lock()
	table := k.table
	k.mu.Unlock()
	if table == nil {
		return 0
	}
	return table.Left(k.shards.Now())
}
