package remote

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

func newFleet(t testing.TB, client *redis.Client, instance string, ttl time.Duration) *Fleet {
	t.Helper()
	b, _ := newBatcher(t, client)
	return NewFleet(b, newKeyspace(t, "tl"), instance, ttl, 1)
}

func mustHeartbeat(t testing.TB, f *Fleet, unsettled bool, lost ...Loss) Heard {
	t.Helper()
	heard, err := f.Heartbeat(context.Background(), unsettled, lost...)
	if err != nil {
		t.Fatal(err)
	}
	return heard
}

// Heartbeats tell instances how many instances there are, and how many of them have not settled. An instance that
// has been silent for the TTL, or has left, is in neither number.
func TestFleetCountsInstances(t *testing.T) {
	client := redistest.Start(t).Client(t)
	a, b := newFleet(t, client, "a", time.Minute), newFleet(t, client, "b", time.Minute)
	crashing := newFleet(t, client, "crashing", 50*time.Millisecond)
	check := func(f *Fleet, unsettledFlag bool, size, unsettled int) {
		t.Helper()
		if heard := mustHeartbeat(t, f, unsettledFlag); heard.Size != size || heard.Unsettled != unsettled || f.Size() != size {
			t.Errorf("%s heard %+v, want size %d, %d unsettled", f.instance, heard, size, unsettled)
		}
		f.batcher.mu.Lock()
		defer f.batcher.mu.Unlock()
		if f.batcher.alone != (size == 1) {
			t.Errorf("%s is alone: %v, in a fleet of %d", f.instance, f.batcher.alone, size)
		}
	}
	check(a, true, 1, 1)
	check(b, false, 2, 1)
	check(b, true, 2, 2)
	check(a, false, 2, 1)
	check(b, false, 2, 0)
	check(a, true, 2, 1)
	if err := a.Leave(context.Background()); err != nil {
		t.Fatal(err)
	}
	if key := a.place.Load().key + ":heartbeats:a"; client.Exists(t.Context(), key).Val() != 0 {
		t.Errorf("%s is left behind by an instance that has left", key)
	}
	check(b, false, 1, 0)
	mustHeartbeat(t, crashing, true)
	redistest.Eventually(t, "the crashed instance counts for nothing", func() bool {
		heard := mustHeartbeat(t, b, false)
		return heard.Size == 1 && heard.Unsettled == 0
	})
}

// The error of a heartbeat is logged, so it must be as readable as that of a decision: without what Redis 6.2 puts
// around the error of a command in a script, and without the arguments that a server quotes.
func TestErrorsOfHeartbeatsAreReadable(t *testing.T) {
	t.Parallel()
	for says, want := range map[string]string{
		"-ERR Error running script (call to f_a3e4): @user_script:68: @user_script: 68: -OOM command not allowed": "heartbeat: OOM command not allowed",
		"-ERR unknown command `evalsha`, with args beginning with: `a3e4`, `5`, `tl:{%fleet}`":                    "heartbeat: unknown command `evalsha`",
	} {
		client := dial(answering(says))(t).(*redis.Client)
		_, err := newFleet(t, client, "a", time.Minute).Heartbeat(t.Context(), false)
		if err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// Law 5: when Redis's clock has stepped back, an instance that has ended since its last heartbeat does not count for
// as long as the step was, and all others count without a break.
func TestLaw5AnInstanceThatEndedBeforeAStepBack(t *testing.T) {
	t.Parallel()
	const ttl = 3 * time.Second // several heartbeats must come in this time, also on a busy machine
	client, ctx := redistest.Start(t).Client(t), context.Background()
	a, b, ends := newFleet(t, client, "a", ttl), newFleet(t, client, "b", ttl), newFleet(t, client, "ends", ttl)
	for _, f := range []*Fleet{a, b, ends} {
		mustHeartbeat(t, f, f != b)
	}
	// To the server it is as if its clock went back by an hour if everything is an hour ahead.
	for _, key := range []string{a.place.Load().key, a.place.Load().key + ":unsettled"} {
		for _, member := range client.ZRange(ctx, key, 0, -1).Val() {
			client.ZIncrBy(ctx, key, float64(time.Hour.Microseconds()), member)
		}
		client.Expire(ctx, key, time.Hour)
	}
	for _, f := range []*Fleet{a, b} {
		p := f.place.Load()
		p.clock += time.Hour.Microseconds()
		p.renewed = p.clock - 2*time.Hour.Microseconds() // the fleet is older than that
	}
	for i, f := range []*Fleet{a, a, b, b} {
		if heard := mustHeartbeat(t, f, f == a); heard.Size != 3 || heard.Unsettled != 2 {
			t.Errorf("heartbeat %d, of %s, heard %+v at once after the step, want all to count", i, f.instance, heard)
		}
	}
	redistest.Eventually(t, "the instance that has ended counts no more", func() bool {
		mustHeartbeat(t, b, false)
		heard := mustHeartbeat(t, a, true)
		return heard.Size == 2 && heard.Unsettled == 1
	})
}

// The generation changes neither with heartbeats nor in an outage in which every membership ends. It changes each
// time Redis loses its data.
func TestFleetGenerationIsRedissMemory(t *testing.T) {
	client, ctx := redistest.Start(t).Client(t), context.Background()
	a, b := newFleet(t, client, "a", 50*time.Millisecond), newFleet(t, client, "b", 50*time.Millisecond)
	first := mustHeartbeat(t, a, false)
	if heard := mustHeartbeat(t, b, false); first.Generation == "" || heard.Generation != first.Generation {
		t.Fatalf("generations %+v and %+v", first, heard)
	}
	redistest.Eventually(t, "all memberships end", func() bool { return client.Exists(ctx, a.place.Load().key).Val() == 0 })
	if heard := mustHeartbeat(t, b, false); heard.Generation != first.Generation || heard.Survived != 1 {
		t.Errorf("after an outage: %+v, the first was %+v", heard, first)
	}
	seen := map[string]bool{first.Generation: true}
	for range 3 {
		client.FlushAll(ctx)
		heard := mustHeartbeat(t, a, false)
		if seen[heard.Generation] || heard.Survived != -1 {
			t.Errorf("after a FLUSHALL: %+v", heard)
		}
		seen[heard.Generation] = true
		if other := mustHeartbeat(t, b, false); other.Generation != heard.Generation {
			t.Errorf("two generations at a time: %+v and %+v", heard, other)
		}
	}
}

// The reply to a heartbeat says which earlier heartbeat Redis remembers. That shows whether writes were lost.
func TestFleetReportsWhichHeartbeatSurvived(t *testing.T) {
	client, ctx := redistest.Start(t).Client(t), context.Background()
	a := newFleet(t, client, "a", time.Minute)
	for i, want := range []int64{-1, 1, 2} {
		if heard := mustHeartbeat(t, a, false); heard.Survived != want || heard.Sequence != int64(i+1) {
			t.Errorf("heartbeat %d: %+v, want %d survived", i+1, heard, want)
		}
	}
	if life := client.PTTL(ctx, a.place.Load().key+":heartbeats:a").Val(); life > HeartbeatLife(3) || life < HeartbeatLife(3)-time.Minute {
		t.Errorf("the third heartbeat is remembered for %v, want %v", life, HeartbeatLife(3))
	}
	snapshot := client.Dump(ctx, a.place.Load().key+":heartbeats:a").Val()
	mustHeartbeat(t, a, false)
	mustHeartbeat(t, a, false)
	if err := client.RestoreReplace(ctx, a.place.Load().key+":heartbeats:a", time.Hour, snapshot).Err(); err != nil {
		t.Fatal(err)
	}
	if heard := mustHeartbeat(t, a, false); heard.Survived != 3 || heard.Sequence != 6 {
		t.Errorf("after the last two heartbeats were lost: %+v", heard)
	}
}

// Law 11: when Redis has lost the memberships, all of them or those since some moment, the first instances to send
// a heartbeat do not take themselves for the whole fleet. Instances that do not come back count for as long as they
// would have counted without the loss.
func TestLaw11AFleetIsAsLargeAsBeforeALossOfMemory(t *testing.T) {
	const instances, ttl = 5, 500 * time.Millisecond
	if n := (&place{least: 3, until: 2}).size(&Heard{Size: 5}, 3, 1, ttl); n != 5 {
		t.Errorf("a fleet that has grown to 5 meanwhile is of size %d", n)
	}
	for name, lose := range map[string]func(ctx context.Context, client *redis.Client, f *Fleet){
		"all": func(ctx context.Context, client *redis.Client, _ *Fleet) { client.FlushAll(ctx) },
		"some": func(ctx context.Context, client *redis.Client, f *Fleet) { // a failover to a replica that was behind
			key := f.place.Load().key
			client.Del(ctx, key)
			client.Set(ctx, key+":heartbeats:"+f.instance, 1, time.Hour)
		},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
				client, ctx := bubble.Client(t), context.Background()
				fleets := make([]*Fleet, instances)
				for i := range fleets {
					fleets[i] = newFleet(t, client, fmt.Sprint(i), ttl)
					mustHeartbeat(t, fleets[i], false)
				}
				first := fleets[0]
				for range 2 {
					mustHeartbeat(t, first, false)
				}
				lose(ctx, client, first)
				for range 2 {
					if heard := mustHeartbeat(t, first, false); heard.Size != instances || first.Size() != instances {
						t.Errorf("right after the loss: %+v, want size %d", heard, instances)
					}
				}
				if heard := mustHeartbeat(t, newFleet(t, client, "new", ttl), false); heard.Size != 2 {
					t.Errorf("an instance that knows nothing of before heard %+v", heard)
				}
				redistest.Eventually(t, "those who do not come back count no longer", func() bool {
					return mustHeartbeat(t, first, false).Size == 1
				})
			})
		})
	}
}

// Law 4: a heartbeat that was in flight while Redis hung, and arrives after a later heartbeat, does not undo the
// later one.
func TestLaw4LateHeartbeatsChangeNothing(t *testing.T) {
	client := redistest.Start(t).Client(t)
	a, b := newFleet(t, client, "a", time.Minute), newFleet(t, client, "b", time.Minute)
	a.heartbeats.Store(5)
	mustHeartbeat(t, a, true)
	a.heartbeats.Store(3) // a heartbeat from before the outage, when all was settled
	if late := mustHeartbeat(t, a, false); late.Sequence != 4 || late.Survived != 6 {
		t.Errorf("%+v", late)
	}
	if heard := mustHeartbeat(t, b, false); heard.Unsettled != 1 {
		t.Errorf("a late heartbeat settled its instance: %+v", heard)
	}
	a.heartbeats.Store(6)
	if heard := mustHeartbeat(t, a, false); heard.Survived != 6 || heard.Unsettled != 0 {
		t.Errorf("a late heartbeat left %+v", heard)
	}
	a.heartbeats.Store(4) // a heartbeat from the recovery, before the instance had settled
	if late := mustHeartbeat(t, a, true); late.Unsettled != 0 {
		t.Errorf("a late heartbeat unsettled its instance: %+v", late)
	}
}

// Law 4: a heartbeat tells Redis's clock, so that the first decision after it knows until when it may be charged.
func TestLaw4HeartbeatsTellTheClock(t *testing.T) {
	f := newFleet(t, redistest.Shared(t).Client(t), redistest.Prefix(), time.Minute)
	clocks := f.script.only.clocks
	if at := clocks.notAfter("k", localTime()); at != 0 {
		t.Fatalf("before any answer it is %d", at)
	}
	mustHeartbeat(t, f, false)
	if at := clocks.notAfter("k", localTime()); at == 0 {
		t.Error("after a heartbeat, Redis's clock is unknown")
	}
}

// An instance whose sequence in Redis is damaged, and larger than its own, counts again from its next heartbeat on.
func TestASequenceThatIsTooLarge(t *testing.T) {
	client := redistest.Start(t).Client(t)
	a, b := newFleet(t, client, "a", time.Minute), newFleet(t, client, "b", time.Minute)
	if err := client.Set(t.Context(), a.place.Load().keys[3].(string), "1000", 0).Err(); err != nil {
		t.Fatal(err)
	}
	mustHeartbeat(t, a, false)
	if heard := mustHeartbeat(t, b, false); heard.Size != 1 {
		t.Fatalf("a heartbeat that looks late counts: %+v", heard)
	}
	if heard := mustHeartbeat(t, a, false); heard.Sequence != 1001 || heard.Size != 2 {
		t.Errorf("the next heartbeat: %+v, want number 1001, and two instances", heard)
	}
}

// Law 11: when heartbeats are answered in another order than they were sent, that does not look like a loss of memory, which
// would keep the fleet as large as before.
func TestLaw11AnswersOutOfOrderAreNoLoss(t *testing.T) {
	p := &place{generation: "g", answered: 6, clock: 1}
	if size := p.size(&Heard{Clock: 2, Size: 1, Generation: "g", Sequence: 5, Survived: 4}, 3, 0, time.Minute); size != 1 {
		t.Errorf("the fleet has %d instances, want 1", size)
	}
	p = &place{generation: "g", answered: 6, clock: 1}
	if size := p.size(&Heard{Clock: 2, Size: 1, Generation: "g", Sequence: 7, Survived: 4}, 3, 0, time.Minute); size != 3 {
		t.Errorf("after a loss the fleet has %d instances, want 3", size)
	}
}

// Law 8: all keys of a fleet expire.
func TestLaw8FleetsExpire(t *testing.T) {
	client, ctx := redistest.Start(t).Client(t), context.Background()
	mustHeartbeat(t, newFleet(t, client, "a", 5*time.Second), true, Loss{"rule", time.Hour})
	keys := client.Keys(ctx, "*").Val()
	if len(keys) != 5 {
		t.Errorf("keys %q", keys)
	}
	for _, key := range keys {
		if client.PTTL(ctx, key).Val() <= 0 {
			t.Errorf("%q never expires", key)
		}
		if keySlot(key) != keySlot("tl:{%fleet}") {
			t.Errorf("%q is in another slot", key)
		}
	}
}

// A process that ends after a few heartbeats without leaving the fleet, as short-lived processes may, leaves
// nothing behind for long. The sequence of a process that has run for a day or longer is kept for a day.
func TestLaw8SequencesOfShortLivesExpireSoon(t *testing.T) {
	client, ctx := redistest.Start(t).Client(t), context.Background()
	f := newFleet(t, client, "a", time.Minute)
	for _, c := range []struct {
		sent int64 // heartbeats sent before
		want time.Duration
	}{{0, time.Minute}, {1, 2 * time.Minute}, {59, time.Hour}, {1439, 24 * time.Hour}, {1 << 52, 24 * time.Hour}} {
		f.heartbeats.Store(c.sent)
		mustHeartbeat(t, f, false)
		if life := client.PTTL(ctx, f.place.Load().key+":heartbeats:a").Val(); life > c.want || life < c.want-10*time.Second {
			t.Errorf("after %d heartbeats the sequence is kept for %v, want %v", c.sent+1, life, c.want)
		}
	}
}

// Law 11: all instances learn for which rules an instance has lost records, and for how long that matters, even if
// that instance leaves or dies. A late heartbeat does not change what they learn.
func TestLaw11FleetsReportWhatIsLost(t *testing.T) {
	client := redistest.Start(t).Client(t)
	a, b := newFleet(t, client, "a", time.Minute), newFleet(t, client, "b", time.Minute)
	check := func(what string, want map[string]time.Duration) {
		t.Helper()
		heard := mustHeartbeat(t, b, false)
		got := make(map[string]time.Duration)
		for _, loss := range heard.Lost {
			got[loss.Rule] = loss.For
		}
		if len(got) != len(want) {
			t.Fatalf("%s: heard %v, want %v", what, got, want)
		}
		for rule, most := range want {
			if left := got[rule]; left <= most/2 || left > most {
				t.Errorf("%s: %s matters for %v, want %v and what has passed of it", what, rule, left, most)
			}
		}
	}
	check("nothing", nil)
	mustHeartbeat(t, a, false, Loss{"day", 24 * time.Hour}, Loss{"hour", time.Hour})
	check("two rules", map[string]time.Duration{"day": 24 * time.Hour, "hour": time.Hour})
	mustHeartbeat(t, a, false, Loss{"hour", time.Minute})
	mustHeartbeat(t, b, false, Loss{"other", time.Hour})
	if err := a.Leave(context.Background()); err != nil {
		t.Fatal(err)
	}
	check("and one more", map[string]time.Duration{"day": 24 * time.Hour, "hour": time.Hour, "other": time.Hour})

	b.heartbeats.Store(0)
	if late := mustHeartbeat(t, b, false, Loss{"late", time.Hour}); len(late.Lost) != 3 {
		t.Errorf("a late heartbeat: %+v", late)
	}
	b.heartbeats.Store(100)
	mustHeartbeat(t, b, false, Loss{"short", 20 * time.Millisecond})
	redistest.Eventually(t, "what has left its window is forgotten", func() bool { return len(mustHeartbeat(t, b, false).Lost) == 3 })

	var many []Loss
	for i := range maxLost {
		many = append(many, Loss{fmt.Sprint("rule", i), time.Hour})
	}
	if heard := mustHeartbeat(t, b, false, many...); len(heard.Lost) != maxLost+3 {
		t.Errorf("%d rules are told, want %d", len(heard.Lost), maxLost+3)
	}
	for i := range many {
		many[i].Rule = fmt.Sprint("another", i)
	}
	mustHeartbeat(t, b, false, many...)
	check("more rules than are told by name", map[string]time.Duration{AnyRule: 24 * time.Hour})
	client.FlushAll(context.Background())
	mustHeartbeat(t, b, false, append(many, Loss{"one more", 2 * time.Hour})...)
	check("more rules of one instance than are told by name", map[string]time.Duration{AnyRule: 2 * time.Hour})
}

// After the slot of the fleet's key has moved, a heartbeat follows the key to its new node. It teaches the old node's
// clock nothing, because another node has answered.
func TestHeartbeatsFollowAKeyThatHasMoved(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2)
	b, _ := newBatcher(t, cluster.Client(t))
	f := NewFleet(b, newKeyspace(t, "tl"), "i", time.Minute, 1)
	key := f.place.Load().key
	slot, from, to := slotToMove(cluster, key)
	node := b.script.nodeOf(t.Context(), key) // the client has its table of slots now
	cluster.MoveSlots(t, from, to, []int{slot}, func() {})
	if heard := mustHeartbeat(t, f, false); heard.Size != 1 || heard.Sequence != 1 {
		t.Errorf("%+v, want the first heartbeat of one instance", heard)
	}
	if node.clocks.only.Load() != nil {
		t.Error("the old node has a clock, but has run nothing")
	}
}

// An answer to a heartbeat that does not have the expected form is an error, and does not panic.
func TestOtherAnswersToHeartbeatsAreNotRead(t *testing.T) {
	good := func() []any {
		return []any{int64(1), int64(2), int64(0), "generation", int64(-1), []any{"rule", int64(5)}}
	}
	var h Heard
	if !h.read(good()) || h.Size != 2 || h.Survived != -1 || len(h.Lost) != 1 {
		t.Fatalf("%+v", h)
	}
	for at := range good() {
		if values := good(); h.read(append(values[:at], values[at+1:]...)) {
			t.Errorf("it was read without its value %d", at)
		}
		values := good()
		if values[at] = nil; h.read(values) {
			t.Errorf("it was read with nothing in the place of value %d", at)
		}
	}
	for _, lost := range [][]any{{int64(5), int64(5)}, {"rule", "rule"}, {"rule", nil, "rule", int64(5)}} {
		values := good()
		if values[5] = lost; h.read(values) {
			t.Errorf("losses %v were read", lost)
		}
	}
}
