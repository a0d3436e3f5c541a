package outage

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/remote"
)

// mastersOf returns a table of slots in which each master owns the sixteenths that begin with its given slots.
func mastersOf(owners map[string][]int) *remote.Masters {
	m := &remote.Masters{}
	for i := range m.BySlot {
		m.BySlot[i] = ^uint16(0)
	}
	for addr, slots := range owners {
		m.Addrs = append(m.Addrs, addr)
		for _, from := range slots {
			for slot := from; slot < from+sixteenth; slot++ {
				m.BySlot[slot] = uint16(len(m.Addrs) - 1)
			}
		}
	}
	return m
}

// sixteenth is the number of slots in a sixteenth of all slots.
const sixteenth = remote.SlotCount / 16

// ranges returns the first slots of the sixteenths from up to, but not including, to.
func ranges(from, to int) (slots []int) {
	for i := from; i < to; i++ {
		slots = append(slots, i*sixteenth)
	}
	return slots
}

// ofSlot returns the shard of a sixteenth.
func (l *testShards) ofSlot(sixteen int) *Shard {
	r := l.routes.Load()
	return r.shards[r.bySlot[sixteen*sixteenth]]
}

// A shard stays with its slots when a replica takes them over, and with its master when the master gets or loses
// slots.
func TestShardsFollowTheirSlots(t *testing.T) {
	l := newShards(t, 0)
	if added := l.reroute(mastersOf(map[string][]int{"a": ranges(0, 5), "b": ranges(5, 10), "c": ranges(10, 16)})); len(added) != 2 {
		t.Fatalf("%d shards were added to the first, want 2", len(added))
	}
	a, b, c := l.ofSlot(0), l.ofSlot(5), l.ofSlot(10)
	if a == b || b == c || a == c || l.ofSlot(4) != a || l.ofSlot(15) != c {
		t.Fatal("three masters have not three shards")
	}
	// A replica of a takes over.
	if added := l.reroute(mastersOf(map[string][]int{"replica": ranges(0, 5), "b": ranges(5, 10), "c": ranges(10, 16)})); added != nil {
		t.Error("a replica that took over got a new shard")
	}
	if l.ofSlot(0) != a || l.ofSlot(5) != b || l.ofSlot(10) != c || a.location.Load().addr != "replica" {
		t.Error("a replica that took over did not get its master's shard")
	}
	// A new master gets some slots of each master.
	added := l.reroute(mastersOf(map[string][]int{"replica": ranges(0, 4), "b": ranges(5, 9), "c": ranges(10, 15), "d": {4 * sixteenth, 9 * sixteenth, 15 * sixteenth}}))
	if len(added) != 1 || l.ofSlot(4) != added[0] || l.ofSlot(9) != added[0] || l.ofSlot(0) != a || l.ofSlot(5) != b || l.ofSlot(10) != c {
		t.Error("a new master did not get a shard of its own, or another lost its")
	}
	// The new master leaves again, and another one comes: its shard is used again.
	l.reroute(mastersOf(map[string][]int{"replica": ranges(0, 5), "b": ranges(5, 10), "c": ranges(10, 16)}))
	if added[0].inUse() || len(l.InUse()) != 3 {
		t.Error("a master without slots is in use")
	}
	if again := l.reroute(mastersOf(map[string][]int{"replica": ranges(0, 5), "b": ranges(5, 10), "c": ranges(10, 15), "e": ranges(15, 16)})); again != nil || l.ofSlot(15) != added[0] {
		t.Error("a shard that was free was not used")
	}
}

// The first shard is used again like all others, once its master has lost all of its slots.
func TestTheFirstShardIsUsedAgain(t *testing.T) {
	l := newShards(t, 0)
	l.reroute(mastersOf(map[string][]int{"a": ranges(0, 16)}))
	l.reroute(mastersOf(map[string][]int{"a": ranges(0, 8), "b": ranges(8, 16)}))
	moved := l.masters[l.first.index].moved
	l.reroute(mastersOf(map[string][]int{"b": ranges(0, 16)}))
	if now := l.masters[l.first.index].moved; now != moved {
		t.Errorf("without slots its membership was moved %d times", now-moved)
	}
	if added := l.reroute(mastersOf(map[string][]int{"b": ranges(0, 8), "c": ranges(8, 16)})); added != nil || l.ofSlot(8) != l.first {
		t.Errorf("%d shards were added, and the new master has shard %d", len(added), l.ofSlot(8).Index())
	}
}

// Law 7: there are at most maxShards shards, however often masters come and go, and however many there are.
func TestLaw7ShardsAreBounded(t *testing.T) {
	l := newShards(t, 0)
	m := &remote.Masters{}
	for i := range 2 * maxShards {
		m.Addrs = append(m.Addrs, string(rune('A'+i)))
	}
	for slot := range m.BySlot {
		m.BySlot[slot] = uint16(slot % len(m.Addrs))
	}
	l.reroute(m)
	slices.Reverse(m.Addrs)
	l.reroute(m)
	r := l.routes.Load()
	if len(r.shards) != maxShards {
		t.Errorf("%d shards, want %d", len(r.shards), maxShards)
	}
}

// Law 11: slots that have not settled do not become settled by moving.
func TestLaw11SlotsThatMoveTakeTheirOutageAlong(t *testing.T) {
	l := newShards(t, 0)
	l.first.Breaker.ForceOpen(errors.New("not reached yet"))
	l.reroute(mastersOf(map[string][]int{"a": ranges(0, 8), "b": ranges(8, 16)}))
	a, b := l.ofSlot(0), l.ofSlot(8)
	if a.State() != Outage || b.State() != Outage {
		t.Fatalf("shards of a Cluster that is lost are %v and %v", a.State(), b.State())
	}
	inherited := a // from the shard that is there already, which is used for either master
	if a == l.first {
		inherited = b
	}
	if _, reason := inherited.LastFailure(); !errors.Is(reason, errInherited) {
		t.Errorf("the reason is %v", reason)
	}
	if a.incident.Load().number == b.incident.Load().number {
		t.Error("two shards have an incident of the same number: shares fixed in one would hold in the other")
	}
	b.Breaker.Probe(func() error { return nil })
	redistest.Eventually(t, "a probe closes b's breaker", func() bool {
		_ = b.Breaker.Probe(func() error { return nil })
		return b.Breaker.Closed()
	})
	if endNow(b); b.State() != Healthy || a.State() != Outage || l.State() != Outage {
		t.Fatalf("b is %v, a %v, the limiter %v", b.State(), a.State(), l.State())
	}
	// Some of a's slots move to b.
	l.reroute(mastersOf(map[string][]int{"a": ranges(0, 7), "b": ranges(7, 16)}))
	if b.State() != Settling || !b.Breaker.Closed() {
		t.Errorf("with slots that have not settled, b is %v", b.State())
	}
}

// A shard does not charge what is owed to another master, which is lost.
func TestShardsChargeTheirOwn(t *testing.T) {
	l := newShards(t, 0)
	l.reroute(mastersOf(map[string][]int{"a": ranges(0, 8), "b": ranges(8, 16)}))
	a, b := l.ofSlot(0), l.ofSlot(8)
	a.Breaker.ForceOpen(errors.New("lost"))
	r := newRule(t, "r", limit.PerHour(100), limit.SlidingLog())
	r.Policy = Allow // grants even if this instance's share has no room
	key := remote.UserKey("of a")
	for l.Of(key) != a {
		key += "."
	}
	if d := without(a, request(r, key, 1), l.Now(), errLost); d.Tier != limit.TierFallback || !d.Allowed {
		t.Fatalf("%+v", d)
	}
	if !a.Owes() || b.Owes() {
		t.Errorf("a owes: %v, b owes: %v", a.Owes(), b.Owes())
	}
	if pause := b.chargeSome(); pause != 0 || !a.Owes() {
		t.Errorf("b took what is to be charged at a; pause %v", pause)
	}
	// The slot moves to b, and with it what is to be charged.
	l.reroute(mastersOf(map[string][]int{"b": ranges(0, 16)}))
	if a.Owes() || !b.Owes() || b.State() != Settling {
		t.Errorf("a owes: %v, b owes: %v, and is %v", a.Owes(), b.Owes(), b.State())
	}
}

// Law 3: if the slot of a charge moves while the charge is being sent, the slot's new shard does not send it as well.
func TestLaw3ASlotMovesWhileAChargeIsBeingSent(t *testing.T) {
	l := newShards(t, 0)
	l.reroute(mastersOf(map[string][]int{"a": ranges(0, 8), "b": ranges(8, 16)}))
	a, b := l.ofSlot(0), l.ofSlot(8)
	r := newRule(t, "r", limit.PerHour(100), limit.SlidingLog())
	key := remote.UserKey("of a")
	for l.Of(key) != a {
		key += "."
	}
	without(a, request(r, key, 1), l.Now(), errLost)
	l.masters[a.index].after = func() {
		l.reroute(mastersOf(map[string][]int{"b": ranges(0, 16), "a": nil}))
		if pause := b.chargeSome(); pause != 0 || !b.Owes() {
			t.Errorf("b takes the charge, and pauses for %v; owes: %v", pause, b.Owes())
		}
	}
	a.chargeSome()
	if units := l.masters[a.index].units() + l.masters[b.index].units(); units != 1 || b.Owes() {
		t.Errorf("%d units charged, want 1; owes: %v", units, b.Owes())
	}
}

// A charge of which nobody knows whether it was made may be taken by another shard at once. (The race detector tells
// whether the first one still uses it.)
func TestShardsHandOverCharges(t *testing.T) {
	l := newShards(t, 0)
	l.reroute(mastersOf(map[string][]int{"a": ranges(0, 8), "b": ranges(8, 16)}))
	a, b := l.ofSlot(0), l.ofSlot(8)
	r := newRule(t, "r", limit.PerHour(100_000), limit.SlidingLog())
	r.Policy = Allow
	key := remote.UserKey("of a")
	for l.Of(key) != a {
		key += "."
	}
	l.masters[a.index].err = remote.ErrNoAnswer
	without(a, request(r, key, 1), l.Now(), errLost)
	ended := make(chan struct{})
	var both sync.WaitGroup
	both.Go(func() {
		defer close(ended)
		for range 1000 {
			a.chargeSome()
		}
	})
	both.Go(func() {
		for {
			select {
			case <-ended:
				return
			default:
				b.nextCharges(l.Now(), false) // looks at each charge that is pending
			}
		}
	})
	both.Wait()
	if pending := l.charges.out; len(pending) != 1 || !pending[0].repeated {
		t.Errorf("pending: %v", pending)
	}
}

// The callback is called when the worst state of all masters changes, not for every master.
func TestStateChangesOfSeveralMasters(t *testing.T) {
	l, told := newShards(t, 0), make(chan State, 10)
	l.Changed = func(to State) { told <- to }
	l.reroute(mastersOf(map[string][]int{"a": ranges(0, 8), "b": ranges(8, 16)}))
	a, b := l.ofSlot(0), l.ofSlot(8)
	l.Go(l.reportChanges)
	expect := func(want State) {
		t.Helper()
		if got := <-told; got != want {
			t.Errorf("told %v, want %v", got, want)
		}
	}
	a.Breaker.ForceOpen(errLost)
	expect(Outage)
	b.Breaker.ForceOpen(errLost)
	l.closeBreaker(t, b)
	endNow(b)
	l.closeBreaker(t, a)
	expect(Settling)
	endNow(a)
	expect(Healthy)
}

// Each change of the worst state is reported, also one that comes from slots that move away from a lost master.
func TestEachChangeOfStateIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newShards(t, 0)
		l.reroute(mastersOf(map[string][]int{"a": ranges(0, 8), "b": ranges(8, 16)}))
		a, b := l.ofSlot(0), l.ofSlot(8)
		var told []State
		changes := 0
		l.Changed, l.BreakerChanged = func(to State) { told = append(told, to) }, func() { changes++ }
		ctx, stop := context.WithCancel(t.Context())
		l.Context = ctx
		var reporting sync.WaitGroup
		reporting.Go(l.reportChanges)
		for _, change := range []func(){
			func() {},
			func() { b.Breaker.ForceOpen(errLost) },
			func() { l.closeBreaker(t, b) },
			func() { a.Breaker.ForceOpen(errLost) },
			func() { l.reroute(mastersOf(map[string][]int{"b": ranges(0, 16)})) },
			func() { endNow(b) },
		} {
			change()
			synctest.Wait()
		}
		if want := []State{Outage, Settling, Outage, Settling, Healthy}; !slices.Equal(told, want) || changes != 3 {
			t.Errorf("told %v, want %v, and of %d breakers", told, want, changes)
		}
		stop()
		reporting.Wait()
	})
}

// A shard for a new master begins with the size of the fleet that other masters have reported. If these report
// another size before the new master has reported any, that one counts for its shares.
func TestANewMasterAssumesTheFleetOfTheOthers(t *testing.T) {
	l := newShards(t, 0)
	var assumed []int
	connect := l.Connect
	l.Connect = func(s *Shard, n int) (Decider, Membership) { assumed = append(assumed, n); return connect(s, n) }
	l.masters[0].heard.Size = 4
	l.heartbeat(t, l.first)
	l.reroute(mastersOf(map[string][]int{"a": ranges(0, 8), "b": ranges(8, 16)}))
	if !slices.Equal(assumed, []int{4}) {
		t.Errorf("new shards assume fleets of %v, want 4", assumed)
	}
	l.masters[0].heard.Size = 8
	l.heartbeat(t, l.first)
	if o := l.ofSlot(8).Outage(); o.Fleet != 8 {
		t.Errorf("%+v, want a fleet of 8", o)
	}
}

// The fleet's key is in a slot of its master, even if the master has a single slot, late in the order of slots.
func TestTheSlotOfTheFleetIsItsMasters(t *testing.T) {
	for slot := range uint16(20) {
		l := newShards(t, 0)
		m := &remote.Masters{Addrs: []string{"a", "b"}}
		m.BySlot[slot] = 1
		l.reroute(m)
		r := l.routes.Load()
		s := r.shards[r.bySlot[slot]]
		if _, fleet := s.Location(); fleet != slot || l.masters[s.index].moved != 1 {
			t.Errorf("the fleet's key of the master of slot %d is in slot %d, and was moved %d times", slot, fleet, l.masters[s.index].moved)
		}
		if len(l.InUse()) != 2 {
			t.Errorf("%d shards are in use, want both", len(l.InUse()))
		}
	}
}

// The callback is told of the last state, however long it takes, and whatever changes meanwhile.
func TestTheLastStateIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, told := newShards(t, 1), make(chan State)
		s := l.first
		l.Changed = func(to State) { told <- to }
		ctx, stop := context.WithCancel(t.Context())
		l.Context = ctx
		var reporting sync.WaitGroup
		reporting.Go(l.reportChanges)
		for range 100 {
			s.Breaker.ForceOpen(errLost)
			synctest.Wait() // the callback is told of the first state, and is busy from then on
			l.closeBreaker(t, s)
			endNow(s)
		}
		var last State
		for more := true; more; {
			select {
			case last = <-told:
			case <-time.After(time.Hour):
				more = false
			}
		}
		if last != Healthy || s.State() != Healthy || l.TimeSpent()[Outage] == 0 {
			t.Errorf("told %v last, it is %v", last, s.State())
		}
		stop()
		reporting.Wait()
	})
}

// Law 11: a shard may have finished settling for a rule, or its incident may still be open because its master has
// no slots. It settles again when slots come to it from a lost master.
func TestLaw11SlotsComeToAShardThatHasSettled(t *testing.T) {
	l := newShards(t, 0)
	l.reroute(mastersOf(map[string][]int{"a": ranges(0, 8), "b": ranges(8, 16)}))
	a, b := l.ofSlot(0), l.ofSlot(8)
	r := newRule(t, "r", limit.PerMinute(100), limit.SlidingLog())
	b.Breaker.ForceOpen(errLost)
	l.closeBreaker(t, b)
	l.now.Add(int64(2 * minute))
	a.Breaker.ForceOpen(errLost)
	if b.Settling(r) {
		t.Fatal("b settles for longer than the rule's window")
	}
	l.reroute(mastersOf(map[string][]int{"a": ranges(0, 7), "b": ranges(7, 16)}))
	if !b.Settling(r) {
		t.Error("b does not settle with slots that have not settled")
	}
}

// Law 11: if a shard owes nothing while slots are moving to it, it has not yet charged what is owed for these
// slots.
func TestLaw11AShardOwesWhatComesToIt(t *testing.T) {
	l := newShards(t, 0)
	l.reroute(mastersOf(map[string][]int{"a": ranges(0, 8), "b": ranges(8, 16)}))
	a, b := l.ofSlot(0), l.ofSlot(8)
	if slotBefore(b.location.Load().fleet, a.location.Load().fleet) {
		a, b = b, a // so that the fleet's slot changes at b, too
	}
	l.heartbeat(t, a)
	l.heartbeat(t, b)
	a.Breaker.ForceOpen(errLost)
	r := newRule(t, "r", limit.PerHour(100), limit.SlidingLog())
	key := remote.UserKey("of a")
	for l.Of(key) != a {
		key += "."
	}
	without(a, request(r, key, 7), l.Now(), errLost)
	looked := false
	l.masters[b.index].moving = func() {
		looked = !b.owesNow() // as b's charger and heartbeats do
		l.now.Add(int64(time.Millisecond))
	}
	l.reroute(mastersOf(map[string][]int{b.location.Load().addr: ranges(0, 16)}))
	if !looked || !b.owesNow() || !b.isUnsettled() {
		t.Errorf("b owed nothing before: %v; now it owes: %v, and is unsettled: %v", looked, b.owesNow(), b.isUnsettled())
	}
}

// Law 11: data that a master has lost is missing wherever its slots go, so they settle there for the window, too.
func TestLaw11SlotsThatMoveAfterALossOfMemory(t *testing.T) {
	l := newShards(t, 0)
	l.reroute(mastersOf(map[string][]int{"a": ranges(0, 8), "b": ranges(8, 16)}))
	a, b := l.ofSlot(0), l.ofSlot(8)
	r := newRule(t, "r", limit.PerHour(100), limit.SlidingLog())
	l.heartbeat(t, a)
	l.heartbeat(t, b)
	l.masters[a.index].heard.Generation = "another"
	l.heartbeat(t, a)
	l.now.Add(int64(minute))
	l.reroute(mastersOf(map[string][]int{"a": ranges(0, 7), "b": ranges(7, 16)}))
	l.now.Add(int64(58 * minute))
	if l.heartbeat(t, b); !b.Settling(r) {
		t.Error("b does not settle until what a has lost has left its window")
	}
	l.now.Add(int64(24 * time.Hour))
	if l.heartbeat(t, b); b.State() != Healthy {
		t.Errorf("b is %v after the longest window", b.State())
	}
}

// All slots are compared after a sign that they have moved, for some seconds. Without a sign, they are compared
// only every few seconds.
func TestSlotsAreLookedAtAfterASign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newShards(t, 0)
		var looked, asked atomic.Int64
		var sign atomic.Bool
		l.Masters = func(context.Context) (*remote.Masters, error) { looked.Add(1); return nil, errLost }
		l.Refresh = func(context.Context) { asked.Add(1) }
		l.MayHaveChanged = func() bool { return sign.Swap(false) }
		ctx, stop := context.WithCancel(t.Context())
		l.Context = ctx
		var following sync.WaitGroup
		following.Go(l.followCluster)
		after := func(d time.Duration, wantLooked, wantAsked int64) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if looked, asked := looked.Load(), asked.Load(); looked != wantLooked || asked != wantAsked {
				t.Errorf("%d looks at all slots, and the Cluster was asked %d times, want %d and %d", looked, asked, wantLooked, wantAsked)
			}
		}
		after(askEvery-lookEvery/2, 0, 0)
		after(3*lookEvery, 1, 1)
		sign.Store(true)
		after(lookEvery, 2, 1)
		after(lookEvery, 3, 1)
		after(askEvery, 1+looks, 2) // the Cluster was asked during the looks that the sign has caused
		stop()
		following.Wait()
	})
}

// A new master that gets slots of one that settles does not count as lost: both answer.
func TestANewMasterOfSlotsThatSettleIsNotLost(t *testing.T) {
	l := newShards(t, 0)
	l.reroute(mastersOf(map[string][]int{"a": ranges(0, 16)}))
	a := l.ofSlot(0)
	a.Breaker.ForceOpen(errors.New("lost"))
	redistest.Eventually(t, "a probe closes a's breaker", func() bool {
		_ = a.Breaker.Probe(func() error { return nil })
		return a.Breaker.Closed()
	})
	if a.State() != Settling {
		t.Fatalf("a is %v", a.State())
	}
	l.reroute(mastersOf(map[string][]int{"a": ranges(0, 8), "b": ranges(8, 16)}))
	if b := l.ofSlot(8); b == a || !b.Breaker.Closed() || b.State() != Settling {
		t.Errorf("the new master is %v, its breaker closed: %v", b.State(), b.Breaker.Closed())
	}
}

// All instances of a fleet find the same slot for the fleet's key, whatever their releases, and the order in which they
// learn of the masters. Otherwise each would count only some of the others.
func TestTheSlotOfTheFleetIsTheSameForAll(t *testing.T) {
	for range 3 { // mastersOf has another order each time
		l := newShards(t, 0)
		l.reroute(mastersOf(map[string][]int{"a": ranges(0, 5), "b": ranges(5, 10), "c": ranges(10, 16)}))
		for sixteen, want := range map[int]uint16{0: 1365, 5: 7644, 10: 10843} {
			if _, fleet := l.ofSlot(sixteen).Location(); fleet != want {
				t.Errorf("the master of slot %d has the fleet's key in slot %d, want %d", sixteen*sixteenth, fleet, want)
			}
		}
		l.reroute(mastersOf(map[string][]int{"a": ranges(1, 16), "b": ranges(0, 1)}))
		if _, fleet := l.ofSlot(15).Location(); fleet != 10843 {
			t.Errorf("the master of most slots has the fleet's key in slot %d, want 10843", fleet)
		}
	}
}

// A new master that gets slots of several vanished ones continues the shard of most of them. It does not continue that of
// a vanished master of which it has no slots, and which may be lost.
func TestANewMasterContinuesTheShardOfMostOfItsSlots(t *testing.T) {
	for _, border := range []int{6, 10} {
		l := newShards(t, 0)
		l.reroute(mastersOf(map[string][]int{"a": ranges(0, border), "b": ranges(border, 16)}))
		a, b, want := l.ofSlot(0), l.ofSlot(15), l.ofSlot(8)
		l.reroute(mastersOf(map[string][]int{"c": ranges(0, 16)}))
		if got := l.ofSlot(0); got != want || len(l.InUse()) != 1 {
			t.Errorf("with %d sixteenths of a it has the shard %d, want %d of %d and %d", border, got.Index(), want.Index(), a.Index(), b.Index())
		}
	}
	l := newShards(t, 0)
	l.reroute(mastersOf(map[string][]int{"a": ranges(0, 4), "b": ranges(4, 16)}))
	a := l.ofSlot(0)
	a.Breaker.ForceOpen(errLost)
	l.reroute(mastersOf(map[string][]int{"b": ranges(0, 8), "c": ranges(8, 16)}))
	if c := l.ofSlot(8); c == a || c.State() == Outage {
		t.Errorf("a new master with slots of a healthy one is %v, and has the shard of a vanished one: %v", c.State(), c == a)
	}
}

// Routes that have not changed leave a shard that settles as it is. Its settling is not prolonged, and its membership
// stays where it is. Only a fleet's key whose slot has gone moves.
func TestTheSameRoutesChangeNothing(t *testing.T) {
	l := newShards(t, 0)
	masters := map[string][]int{"a": ranges(0, 8), "b": ranges(8, 16)}
	l.reroute(mastersOf(masters))
	a, b := l.ofSlot(0), l.ofSlot(8)
	a.Breaker.ForceOpen(errLost)
	l.closeBreaker(t, a)
	settling, moved := a.incident.Load(), [2]int{l.masters[a.index].moved, l.masters[b.index].moved}
	l.now.Add(int64(time.Second))
	l.reroute(mastersOf(masters))
	if a.State() != Settling || a.incident.Load() != settling {
		t.Errorf("a is %v, in another incident than before", a.State())
	}
	if now := [2]int{l.masters[a.index].moved, l.masters[b.index].moved}; now != moved {
		t.Errorf("the memberships have moved %v times, want %v", now, moved)
	}
	fleet := int(a.location.Load().fleet) / sixteenth // the sixteenth that has the fleet's key
	rest := slices.DeleteFunc(ranges(0, 8), func(from int) bool { return from == fleet*sixteenth })
	l.reroute(mastersOf(map[string][]int{"a": rest, "b": append(ranges(8, 16), fleet*sixteenth)}))
	if got := l.masters[a.index].moved; got != moved[0]+1 {
		t.Errorf("when its slot has gone, the membership of a has moved %d times, want %d", got, moved[0]+1)
	}
}

// Slots that no master has count as lost, and nobody asks for them. The others are decided as before.
func TestSlotsWithoutAMasterAreLost(t *testing.T) {
	l := newShards(t, 0)
	l.reroute(mastersOf(map[string][]int{"a": ranges(0, 8), "b": ranges(8, 16)}))
	l.reroute(mastersOf(map[string][]int{"a": ranges(0, 8), remote.NoMaster: ranges(8, 16)}))
	a, lost := l.ofSlot(0), l.ofSlot(8)
	if a.State() != Healthy || lost.State() != Outage {
		t.Errorf("a is %v, and the slots without a master are in %v", a.State(), lost.State())
	}
	if _, reason := lost.LastFailure(); !errors.Is(reason, errNowhere) {
		t.Errorf("the reason is %v", reason)
	}
}
