package tiered

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/tierlimit/tierlimit/local"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

const (
	// leasedKeys is for how many keys a process can hold leases, or find out whether
	// to, at once. It takes 80 bytes for each, once there is a rule with leases.
	leasedKeys = 8192
	// mostRenewals is how many leases are asked for at once; keys beyond go on to be
	// decided in Redis.
	mostRenewals = 64
	// endIdleEvery is how often unused leases are looked for, while there are leases.
	endIdleEvery = 50 * time.Millisecond
)

// leaseKeeper has the leases of all rules of a limiter.
type leaseKeeper struct {
	trips sync.WaitGroup

	mu       sync.Mutex    // guards the fields below
	table    *local.Leases // nil until a rule needs it
	wake     chan struct{} // told when there are leases; made with table
	underWay int
	closed   bool
}

// leaseTable is made when the first rule needs it.
func (l *Limiter) leaseTable() *local.Leases {
	k := &l.leases
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.table == nil {
		k.table, k.wake = local.NewLeases(leasedKeys), make(chan struct{}, 1)
		if l.config.virtualClock == nil && !k.closed {
			l.background.Go(l.keepLeases)
		}
	}
	return k.table
}

// begin lets one more trip for leases be made; end must follow it. It returns false if
// there are enough, and once the keeper is closed.
func (k *leaseKeeper) begin() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed || k.underWay == mostRenewals {
		return false
	}
	k.underWay++
	k.trips.Add(1)
	return true
}

func (k *leaseKeeper) end() {
	k.mu.Lock()
	k.underWay--
	k.mu.Unlock()
	k.trips.Done()
}

// renewLease asks for a lease, in place of the one that is held for the key, if there is
// one.
func (r *Rule) renewLease(key *callKey, want int64) {
	l, t := r.limiter, r.lease
	hash := key.hash ^ t.salt
	terms := remote.Lease{ID: t.table.NextID(), Most: t.most, Reserve: t.reserve, Life: t.life}
	var entries []remote.Entry
	if old, ok := t.table.End(hash); ok {
		terms.Over = old.ID
		if old.Left > 0 {
			r.unrecord(&old)
			entries = append(entries, r.unspent(&old))
		}
	}
	entries = append(entries, remote.Entry{Key: string(key.inRedis()), Rule: r.encoded, Operation: lua.Lease, Cost: want, Lease: &terms})
	sent := l.now()
	sent -= sent % int64(time.Microsecond) // Redis may have looked at its clock at that very moment
	// Not in a caller's time: who charges in advance must not charge for nobody.
	replies, err := l.shardOf(key).DecideAll(context.Background(), entries, l.config.deadline)
	now := l.now()
	if err != nil {
		t.table.Refused(hash, now+int64(t.life))
		return
	}
	reply := &replies[len(replies)-1]
	if reply.Granted == 0 {
		t.table.Refused(hash, now+int64(t.life)/4)
		return
	}
	// On record from now on, spent or not: as in Redis.
	q := r.question(key, want, lua.Lease)
	l.shardOf(key).Leased(&q, reply.Granted)
	lease := local.Lease{
		ID: terms.ID, Key: strings.Clone(string(key.inRedis())), Hash: key.hash, Owner: r,
		Units: reply.Granted, Stamp: reply.Stamp,
		Ends: sent + int64(reply.Life-reply.Life/leaseDrift),
		Free: reply.Remaining, Reset: sent + int64(reply.ResetAfter),
	}
	if !t.table.Hold(hash, now, lease) {
		l.giveBack([]local.Ended{{Lease: lease, Left: lease.Units}})
		return
	}
	select {
	case l.leases.wake <- struct{}{}:
	default:
	}
}

// keepLeases runs in the background: it gives back what is not used.
func (l *Limiter) keepLeases() {
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-l.leases.wake:
		}
		for l.leases.table.Held() > 0 {
			select {
			case <-l.ctx.Done():
				return
			case <-time.After(endIdleEvery):
				l.endIdleLeases()
			}
		}
	}
}

func (l *Limiter) endIdleLeases() {
	if l.leases.begin() {
		defer l.leases.end()
		l.giveBack(l.leases.table.EndIdle(l.now()))
	}
}

// closeLeases gives all leases back (law 12). None is granted afterwards.
func (l *Limiter) closeLeases() {
	k := &l.leases
	k.mu.Lock()
	k.closed = true
	table := k.table
	k.mu.Unlock()
	k.trips.Wait()
	if table != nil {
		l.giveBack(table.EndAll())
	}
}

// giveBack returns what is left of leases to Redis. Where Redis is lost the units stay
// charged there until they leave the window.
func (l *Limiter) giveBack(ended []local.Ended) {
	for i := range ended {
		ended[i].Owner.(*Rule).unrecord(&ended[i])
	}
	for len(ended) > 0 {
		some := ended[:min(len(ended), maxBatch)]
		ended = ended[len(some):]
		var returns sync.WaitGroup
		for i := range some {
			e, r := &some[i], some[i].Owner.(*Rule)
			s := l.shards.Of(remote.UserKey(e.Key))
			if !s.Breaker.Closed() {
				continue
			}
			returns.Go(func() {
				if _, err := s.Decide(context.Background(), r.unspent(e)); err != nil {
					l.log.Warn("lease", "units of a lease could not be given back; they stay charged until they leave the window", "error", err)
					return
				}
				r.forgetDenial(e.Hash)
			})
		}
		returns.Wait()
	}
}

// unrecord takes what is left of a lease out of the ledger: before Redis is told, since
// this instance's own record may say less than Redis, never more.
func (r *Rule) unrecord(e *local.Ended) {
	key := callKey{hash: e.Hash, name: remote.UserKey(e.Key)}
	q := r.question(&key, 0, lua.Refund)
	r.limiter.shardOf(&key).Returned(&q, e.Left, false)
}

// unspent is the refund of what is left of a lease.
func (r *Rule) unspent(e *local.Ended) remote.Entry {
	return remote.Entry{
		Key: e.Key, Rule: r.encoded, Operation: lua.Refund,
		Cost: e.Left, Charged: e.Units, Stamp: e.Stamp,
	}
}

// dropLease forgets the lease held for a key: what it was charged to is no more.
func (r *Rule) dropLease(hash uint64) {
	if r.lease != nil {
		r.lease.table.End(hash ^ r.lease.salt)
	}
}

// leasedUnits is how many units are held on lease and not spent.
func (l *Limiter) leasedUnits() int64 {
	l.leases.mu.Lock()
	table := l.leases.table
	l.leases.mu.Unlock()
	if table == nil {
		return 0
	}
	return table.Left(l.now())
}
