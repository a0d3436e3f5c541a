package lease

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlimit/tierlimit/internal/outage"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/local"
	"github.com/tierlimit/tierlimit/local/ledger"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// master stands in for Redis: it grants the leases that it is asked for, and records refunds.
type master struct {
	outage.Membership
	asked    []remote.Entry
	refunded int64
	grants   int64 // the most units of a lease
	err      error
}

func (m *master) Answered() int64             { return 0 }
func (m *master) HasWaiters() bool            { return false }
func (m *master) Close()                      {}
func (m *master) Heard() bool                 { return true }
func (m *master) Size() int                   { return 1 }
func (m *master) Leave(context.Context) error { return nil }

func (m *master) DecideInto(ctx context.Context, e *remote.Entry, reply *remote.Reply) (err error) {
	*reply, err = m.Decide(ctx, *e)
	return err
}

func (m *master) Decide(_ context.Context, e remote.Entry) (remote.Reply, error) {
	m.asked = append(m.asked, e)
	switch {
	case m.err != nil:
		return remote.Reply{}, m.err
	case e.Operation == lua.Refund:
		m.refunded += e.Cost
		return remote.Reply{Granted: e.Cost}, nil
	}
	return remote.Reply{Granted: min(e.Cost, m.grants), Life: e.Lease.Life, Stamp: 7, Remaining: 50, ResetAfter: time.Minute}, nil
}

func (m *master) DecideAll(ctx context.Context, entries []remote.Entry, _ time.Duration) ([]remote.Reply, error) {
	var replies []remote.Reply
	for _, e := range entries {
		reply, err := m.Decide(ctx, e)
		if err != nil {
			return nil, err
		}
		replies = append(replies, reply)
	}
	return replies, nil
}

type silent struct{}

func (silent) Warn(string, string, ...any) {}
func (silent) Info(string, string, ...any) {}

// leasing has a keeper in virtual time, a rule with a limit of 1,000 per minute of which a tenth may be on lease,
// and what the keeper has reported.
type leasing struct {
	*master
	*Keeper
	now          int64
	ledger       *ledger.Ledger[*outage.Rule]
	rule         *Rule
	forgotten    []uint64
	notGivenBack error
}

const hash, key = 42, "k"

func newLeasing(t *testing.T) *leasing {
	lim := limit.PerMinute(1000)
	l := &leasing{now: int64(time.Hour), master: &master{grants: 20}, ledger: ledger.New[*outage.Rule](8)}
	clock := func() int64 { return l.now }
	var background sync.WaitGroup
	shards := outage.New(outage.Config{
		Context: t.Context(), Go: background.Go, Now: clock, Deadline: time.Second, Ledger: l.ledger, Log: silent{}, BreakerChanged: func() {},
		Connect: func(*outage.Shard, int) (outage.Decider, outage.Membership) { return l.master, l.master },
	})
	l.Keeper = New(shards, true, func(err error) { l.notGivenBack = err })
	l.Begin()
	terms, inRedis := NewTerms(local.NewHasher(), "r", lim, limit.SlidingLog(), 10, false)
	if inRedis != lim || terms.Most != 100 || terms.Reserve != 100 || terms.Life != Longest {
		t.Fatalf("%+v, in Redis %v", terms, inRedis)
	}
	l.rule = &Rule{Terms: terms, Outage: &outage.Rule{Name: "r", Limit: lim, Capacity: 1000}, ForgetDenial: func(hash uint64) { l.forgotten = append(l.forgotten, hash) }}
	return l
}

func (l *leasing) Close() { l.Keeper.Close(context.Background()) }

// demand makes Redis grant 20 units, one by one within 20 ms.
func (l *leasing) demand() {
	for range 20 {
		l.Granted(l.rule, hash, key, 1)
		l.now += int64(time.Millisecond)
	}
}

// leases returns how many leases were requested.
func (m *master) leases() (n int) {
	for i := range m.asked {
		if m.asked[i].Operation == lua.Lease {
			n++
		}
	}
	return n
}

// A lease that has fewer units than a request needs is replaced by the next one. The same trip gives the rest of
// the old lease back, and the rest no longer counts as granted by this instance.
func TestARenewalGivesBackTheRest(t *testing.T) {
	l := newLeasing(t)
	l.demand()
	units := l.left()
	l.Begin() // another rule has leases, too
	for range units - 1 {
		if _, ok := l.Spend(l.rule, hash, l.now, 1, 1); !ok {
			t.Fatal("no lease")
		}
	}
	first := l.asked[len(l.asked)-1]
	l.asked = nil
	if _, ok := l.Spend(l.rule, hash, l.now, 3, 3); ok {
		t.Fatal("it has 3 units left")
	}
	l.Granted(l.rule, hash, key, 3)
	if len(l.asked) != 2 {
		t.Fatalf("%+v", l.asked)
	}
	rest, next := l.asked[0], l.asked[1]
	if rest.Operation != lua.Refund || rest.Key != key || rest.Cost != 1 || rest.Charged != units || rest.Stamp != 7 {
		t.Errorf("the rest: %+v", rest)
	}
	if next.Operation != lua.Lease || next.Key != key || next.Lease.Over != first.Lease.ID || next.Lease.ID == first.Lease.ID ||
		next.Lease.Most != 100 || next.Lease.Reserve != 100 {
		t.Errorf("the next lease: %+v, %+v", next, next.Lease)
	}
	if !slices.Equal(l.forgotten, []uint64{hash}) {
		t.Errorf("denials are forgotten of %v, want of the key", l.forgotten) // law 2: units were given back
	}
	account := ledger.Account[*outage.Rule]{Hash: hash, Window: time.Minute, Quota: 1000}
	if used := l.ledger.Used(&account, l.now); used != units-1+l.left() || l.Left() != l.left() {
		t.Errorf("%d units count as granted here, of which %d are left; want %d, and %d", used, l.Left(), units-1+l.left(), l.left())
	}
	// The next lease is spent completely, so there is no rest.
	for range l.left() {
		l.Spend(l.rule, hash, l.now, 1, 1)
	}
	l.asked = nil
	if l.Granted(l.rule, hash, key, 3); len(l.asked) != 1 || l.asked[0].Lease.Over != next.Lease.ID {
		t.Errorf("with nothing left: %+v", l.asked)
	}
}

// Law 11: unspent units leave the instance's record where Redis counts them. Otherwise a key whose leases are mostly
// given back would have more on record than Redis counts, and shares are made of that if Redis is lost.
func TestLaw11RestsOfLeasesAreNotOnRecord(t *testing.T) {
	for _, a := range []limit.Algorithm{limit.SlidingCounter(16, limit.Strict), limit.GCRA(), limit.FixedWindow(), limit.SlidingLog()} {
		l := newLeasing(t)
		l.rule.Outage.Algorithm = a
		const seconds, spent = 200, 5 // in each
		for range seconds {
			next := l.now + int64(time.Second)
			l.demand()
			for range spent {
				if _, ok := l.Spend(l.rule, hash, l.now, 1, 1); !ok {
					t.Fatal("no lease")
				}
			}
			l.now = next - 1
			l.endIdle()
			l.now = next
		}
		if l.Left() != 0 {
			t.Fatalf("%d units are still on lease", l.Left())
		}
		account := ledger.Account[*outage.Rule]{Hash: hash, Window: time.Minute, Quota: 1000}
		used := l.ledger.Used(&account, l.now)
		// The oldest sub-window, of 4 s, counts in part. Under a log Redis, too, gives back the oldest units.
		const inWindow, most = 60 * spent, 64 * spent
		if isLog := a == limit.SlidingLog(); used < inWindow-spent || used > most != isLog {
			t.Errorf("%v: %d units on record, %d were spent in the last window", a, used, inWindow)
		}
	}
}

// If Redis leases nothing of a key, or is lost, the key's lease is not requested again at once.
func TestLeasesThatAreNotGranted(t *testing.T) {
	for what, c := range map[string]struct {
		err   error
		pause time.Duration
	}{
		"nothing to lease": {nil, Longest / 4},
		"Redis is lost":    {errors.New("lost"), Longest},
	} {
		l := newLeasing(t)
		l.grants, l.err = 0, c.err
		for l.leases() == 0 {
			l.Granted(l.rule, hash, key, 1)
		}
		refused := l.now
		for l.now+int64(20*time.Millisecond) <= refused+int64(c.pause) {
			l.demand()
		}
		if n := l.leases(); n != 1 {
			t.Errorf("%s: asked for %d leases within %v", what, n, time.Duration(l.now-refused))
		}
		l.demand()
		if l.demand(); l.leases() != 2 {
			t.Errorf("%s: asked for %d leases, the last %v after the first", what, l.leases(), time.Duration(l.now-refused))
		}
	}
}

// A lease ends a little before its life in Redis does, counted from before the lease was requested. Its grants
// report how many units are left in the lease and in Redis, and when the key will be as if it had never been
// used.
func TestWhatALeaseSays(t *testing.T) {
	l := newLeasing(t)
	l.now += 999 // Redis's clock counts whole microseconds
	asked := int64(0)
	for ; l.leases() == 0; l.now += int64(time.Millisecond) {
		asked = l.now
		l.Granted(l.rule, hash, key, 1)
	}
	units := l.left()
	ends := asked - 999 + int64(Longest-Longest/Drift)
	for l.now = asked + int64(Longest/10); l.now < ends; l.now += int64(Longest / 10) { // never idle
		units--
		spent, ok := l.Spend(l.rule, hash, l.now, 1, 1)
		if want := (local.Spent{Stamp: 7, Remaining: 50 + units, ResetAfter: time.Minute - time.Duration(l.now-asked+999)}); !ok || spent != want {
			t.Fatalf("%+v, %v; want %+v", spent, ok, want)
		}
	}
	for now, spendable := range map[int64]bool{ends - 1: true, ends: false} {
		if _, ok := l.table.Spend(hash^l.rule.Salt, now, 1, 0); ok != spendable {
			t.Errorf("%v before its end it can be spent: %v", time.Duration(ends-now), ok)
		}
	}
}

// If a lease cannot be given back, the keeper reports that, and the key's remembered denials stay.
func TestLeasesThatAreNotGivenBack(t *testing.T) {
	l := newLeasing(t)
	l.demand()
	l.err = errors.New("lost")
	if l.Close(); !errors.Is(l.notGivenBack, l.err) || len(l.forgotten) > 0 {
		t.Errorf("told %v, forgotten %v", l.notGivenBack, l.forgotten)
	}
}

// A key that is asked for often gets a lease. Unspent units are given back when the lease is idle, and by Close
// (law 12). Without Redis there is no lease, and nothing is lost.
func TestLeasesWithoutRedis(t *testing.T) {
	l := newLeasing(t)
	if none, _ := NewTerms(local.NewHasher(), "r", limit.PerMinute(9), limit.SlidingLog(), 10, false); none != nil {
		t.Errorf("less than a unit on lease: %+v", none)
	}
	if _, ok := l.Spend(l.rule, hash, l.now, 1, 1); ok {
		t.Fatal("a lease before any was asked for")
	}
	l.demand()
	spent, ok := l.Spend(l.rule, hash, l.now, 3, 3)
	if !ok || spent.Stamp != 7 || l.Left() != l.left()-3 {
		t.Fatalf("%+v, %v, %d left", spent, ok, l.Left())
	}
	left := l.Left()
	l.now += int64(Longest) // the lease is idle, and over
	if _, ok := l.Spend(l.rule, hash, l.now, 1, 0); ok || l.refunded != left || l.Left() != 0 || !slices.Contains(l.forgotten, hash) {
		t.Errorf("%d of %d units given back, denials forgotten: %v", l.refunded, left, l.forgotten)
	}

	l.err = errors.New("lost")
	if l.demand(); l.Left() != 0 || l.notGivenBack != nil {
		t.Errorf("%d units without Redis, %v", l.Left(), l.notGivenBack)
	}
	l.err = nil
	l.now += int64(time.Minute)
	l.demand()
	left = l.Left()
	l.refunded = 0
	if l.Close(); left == 0 || l.refunded != left || l.Left() != 0 {
		t.Errorf("closing gave back %d of %d units", l.refunded, left)
	}
	if l.demand(); l.Left() != 0 {
		t.Error("a lease after Close")
	}
}

// left returns how many units the last lease had.
func (m *master) left() int64 {
	last := m.asked[len(m.asked)-1]
	return min(last.Cost, m.grants)
}

func (m *master) DecideApart([]remote.Entry, time.Duration) []remote.Reply { return nil }
func (m *master) TurnsAway() bool                                          { return false }
func (m *master) DelayDenied(context.Context)                              {}

// blocked is a master that answers requests in a group only when the test lets them through.
type blocked struct {
	*master
	mu       sync.Mutex
	underWay int
	let      chan struct{}
}

func (b *blocked) DecideAll(ctx context.Context, entries []remote.Entry, within time.Duration) ([]remote.Reply, error) {
	b.mu.Lock()
	b.underWay++
	b.mu.Unlock()
	<-b.let
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.master.DecideAll(ctx, entries, within)
}

func (b *blocked) Decide(ctx context.Context, e remote.Entry) (remote.Reply, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.master.Decide(ctx, e)
}

// Law 7: however many keys are asked for, only a bounded number of leases is requested at a time. Law 12: leases
// that are granted while the keeper is being closed are also given back.
func TestLaws7And12LeasesThatAreUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeasing(t)
		b := &blocked{master: l.master, let: make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var background sync.WaitGroup
		shards := outage.New(outage.Config{
			Context: ctx, Go: background.Go, Now: func() int64 { return l.now }, Deadline: time.Second, Ledger: l.ledger, Log: silent{}, BreakerChanged: func() {},
			Connect: func(*outage.Shard, int) (outage.Decider, outage.Membership) { return b, b },
		})
		k := New(shards, false, func(err error) { t.Error(err) })
		k.Begin()
		var forgotten atomic.Int64
		rule := *l.rule
		rule.ForgetDenial = func(uint64) { forgotten.Add(1) }
		const keys = maxRenewals + 10
		demand := func(from int) {
			for i := from; i < keys; i++ {
				for range 10 {
					k.Granted(&rule, uint64(i)<<24, remote.UserKey(strconv.Itoa(i)), 1)
				}
			}
			synctest.Wait()
		}
		demand(0)
		if b.underWay != maxRenewals {
			t.Errorf("%d leases are requested at a time, want %d", b.underWay, maxRenewals)
		}
		b.let <- struct{}{}
		synctest.Wait()
		l.now += int64(2 * Longest)
		if demand(maxRenewals); b.underWay != maxRenewals+1 {
			t.Errorf("after one of %d more keys' leases are requested, want one", b.underWay-maxRenewals)
		}
		closed := make(chan struct{})
		go func() {
			k.Close(t.Context())
			close(closed)
		}()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("Close does not wait for leases that are under way")
		default:
		}
		close(b.let)
		<-closed
		granted := int64(0)
		for _, e := range b.asked {
			if e.Operation == lua.Lease {
				granted += min(e.Cost, b.grants)
			}
		}
		if k.Left() != 0 || b.refunded != granted || granted == 0 || forgotten.Load() != maxRenewals+1 {
			t.Errorf("%d of %d units were given back, %d are left; denials of %d keys forgotten", b.refunded, granted, k.Left(), forgotten.Load())
		}
		cancel()
		background.Wait()
	})
}

// Leases that are not used for a while are given back in the background, and no longer count as granted by this
// instance.
func TestIdleLeasesAreGivenBackInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeasing(t)
		started := time.Now()
		now := func() int64 { return int64(time.Hour + time.Since(started)) }
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var background sync.WaitGroup
		shards := outage.New(outage.Config{
			Context: ctx, Go: background.Go, Now: now, Deadline: time.Second, Ledger: l.ledger, Log: silent{}, BreakerChanged: func() {},
			Connect: func(*outage.Shard, int) (outage.Decider, outage.Membership) { return l.master, l.master },
		})
		k := New(shards, false, func(err error) { t.Error(err) })
		k.Begin()
		for l.leases() == 0 {
			k.Granted(l.rule, hash, key, 1)
			synctest.Wait()
		}
		units := k.Left()
		account := ledger.Account[*outage.Rule]{Hash: hash, Window: time.Minute, Quota: 1000}
		if used := l.ledger.Used(&account, now()); used != units || units == 0 {
			t.Fatalf("%d units on lease, %d count as granted here", units, used)
		}
		time.Sleep(Longest/4 + 2*endIdleEvery)
		if k.Left() != 0 || l.refunded != units || l.ledger.Used(&account, now()) != 0 {
			t.Errorf("%d of %d units were given back, %d are left, %d count as granted here", l.refunded, units, k.Left(), l.ledger.Used(&account, now()))
		}
		k.Close(t.Context())
		cancel()
		background.Wait()
	})
}

// ending is a master that calls a function when units are given back.
type ending struct {
	*blocked
	end func()
}

func (e *ending) Decide(ctx context.Context, entry remote.Entry) (remote.Reply, error) {
	defer e.end()
	return e.blocked.Decide(ctx, entry)
}

// Law 12: Close stops giving leases back when its time is over, however many there are, even if Redis answers.
func TestLaw12CloseGivesLeasesBackForALimitedTime(t *testing.T) {
	l := newLeasing(t)
	within, end := context.WithCancel(t.Context())
	m := &ending{blocked: &blocked{master: l.master, let: make(chan struct{})}, end: end}
	close(m.let)
	var background sync.WaitGroup
	shards := outage.New(outage.Config{
		Context: t.Context(), Go: background.Go, Now: func() int64 { return l.now }, Deadline: time.Second, Ledger: l.ledger, Log: silent{}, BreakerChanged: func() {},
		Connect: func(*outage.Shard, int) (outage.Decider, outage.Membership) { return m, m },
	})
	var told []error
	k := New(shards, true, func(err error) { told = append(told, err) })
	k.Begin()
	rule := *l.rule
	rule.ForgetDenial = func(uint64) {}
	const keys = 3 * returnedAtOnce
	for i := range keys {
		for range 10 {
			k.Granted(&rule, uint64(i)<<24, remote.UserKey(strconv.Itoa(i)), 1)
		}
	}
	if n := l.leases(); n != keys {
		t.Fatalf("%d leases, want %d", n, keys)
	}
	l.asked = nil
	if k.Close(within); len(l.asked) != returnedAtOnce || len(told) != 1 || !errors.Is(told[0], context.Canceled) || k.Left() != 0 {
		t.Errorf("%d leases are given back, and told is %v; %d units are left", len(l.asked), told, k.Left())
	}
}

// Close does not ask a Redis that is lost: the units of its leases stay charged there until they leave the window.
// They are not on record as spent.
func TestLeasesStayChargedInARedisThatIsLost(t *testing.T) {
	l := newLeasing(t)
	l.demand()
	left := l.Left()
	l.shards.Of(key).Breaker.ForceOpen(errors.New("lost"))
	l.asked = nil
	if l.Close(); left == 0 || len(l.asked) > 0 || l.notGivenBack != nil || l.Left() != 0 {
		t.Errorf("%d units on lease: Redis is asked %+v, told %v, %d left", left, l.asked, l.notGivenBack, l.Left())
	}
	account := ledger.Account[*outage.Rule]{Hash: hash, Window: time.Minute, Quota: 1000}
	if used := l.ledger.Used(&account, l.now); used != 0 {
		t.Errorf("%d units count as granted here", used)
	}
}

// The lease of a key that was reset cannot be spent, and is not given back: Redis no longer knows of it.
func TestLeasesOfResetKeysAreDropped(t *testing.T) {
	l := newLeasing(t)
	l.demand()
	if l.Left() == 0 {
		t.Fatal("no lease")
	}
	l.Drop(l.rule, hash)
	if _, ok := l.Spend(l.rule, hash, l.now, 1, 1); ok || l.Left() != 0 {
		t.Errorf("spent %v, %d left", ok, l.Left())
	}
	if l.Close(); l.refunded != 0 {
		t.Errorf("%d units are given back", l.refunded)
	}
}
