package outage

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlimit/tierlimit/breaker"
	"github.com/tierlimit/tierlimit/internal/durations"
	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/local"
	"github.com/tierlimit/tierlimit/local/ledger"
	"github.com/tierlimit/tierlimit/remote"
)

// These tests run without Redis, and in a virtual time that they advance themselves.

const minute = time.Minute

var errLost = breaker.ErrOpen

// master stands in for a master. It answers heartbeats as the test says, and records charges.
type master struct {
	mu       sync.Mutex
	heard    remote.Heard
	behind   int64  // the number of heartbeats that the next one finds lost
	delayed  func() // called before each heartbeat is answered
	err      error  // of every request
	charged  []remote.Entry
	told     []remote.Loss // by the last heartbeat
	owed     bool          // whether the last heartbeat said that the instance has not settled
	met      bool
	moved    int              // how often the fleet's key was moved
	moving   func()           // called when the fleet's key is moved
	after    func()           // called once between a charge and its answer
	refused  map[string]error // by key
	turned   map[string]int   // the number of refused charges, by key
	answered int64            // decisions that it made in time
	crowded  bool             // whether it has no room for decisions
	within   time.Duration    // the time that the last charges had
}

func (m *master) Heartbeat(_ context.Context, unsettled bool, lost ...remote.Loss) (remote.Heard, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return remote.Heard{}, m.err
	}
	if m.delayed != nil {
		m.delayed()
	}
	m.met, m.told, m.owed = true, lost, unsettled
	m.heard.Survived = m.heard.Sequence - m.behind
	m.behind = 0
	m.heard.Sequence++
	heard := m.heard
	heard.Lost = append(lost, heard.Lost...)
	return heard, nil
}

func (m *master) Leave(context.Context) error { return m.err }
func (m *master) Size() int                   { return max(1, m.heard.Size) }
func (m *master) Heard() bool                 { return m.met }
func (m *master) Answered() int64             { return m.answered }
func (m *master) HasWaiters() bool            { return false }
func (m *master) Close()                      {}

func (m *master) MoveTo(uint16, int) {
	if m.moved++; m.moving != nil {
		m.moving()
	}
}

func (m *master) DecideInto(ctx context.Context, e *remote.Entry, reply *remote.Reply) (err error) {
	*reply, err = m.Decide(ctx, *e)
	return err
}

func (m *master) Decide(_ context.Context, e remote.Entry) (remote.Reply, error) {
	if m.crowded {
		return remote.Reply{}, remote.ErrNoRoom
	}
	return m.charge(e)
}

func (m *master) charge(e remote.Entry) (remote.Reply, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.refused[e.Key]; err != nil {
		m.turned[e.Key]++
		return remote.Reply{}, err
	}
	m.charged = append(m.charged, e)
	if after := m.after; after != nil {
		m.after = nil
		m.mu.Unlock()
		after()
		m.mu.Lock()
	}
	reply := remote.Reply{}
	for _, c := range e.Charges {
		reply.Granted += c.Units
	}
	return reply, m.err
}

func (m *master) DecideAll(context.Context, []remote.Entry, time.Duration) ([]remote.Reply, error) {
	return nil, m.err
}

func (m *master) DecideApart(entries []remote.Entry, within time.Duration) []remote.Reply {
	m.within = within
	return oneByOne(entries, m.charge)
}

// oneByOne has entries decided one after another.
func oneByOne(entries []remote.Entry, decide func(remote.Entry) (remote.Reply, error)) []remote.Reply {
	replies := make([]remote.Reply, len(entries))
	for i, e := range entries {
		replies[i], replies[i].Err = decide(e)
	}
	return replies
}

func (m *master) TurnsAway() bool             { return false }
func (m *master) DelayDenied(context.Context) {}

// units returns how many units the master was told to charge.
func (m *master) units() (units int64) {
	for _, e := range m.charged {
		for _, c := range e.Charges {
			units += c.Units
		}
	}
	return units
}

// testShards has shards, with stand-ins for everything that they need.
type testShards struct {
	*Shards
	now     atomic.Int64
	masters []*master
}

type noLog struct{}

func (noLog) Warn(string, string, ...any) {}
func (noLog) Info(string, string, ...any) {}

// warnings is a Log that keeps the warnings.
type warnings []string

func (w *warnings) Warn(_, message string, _ ...any) { *w = append(*w, message) }
func (*warnings) Info(string, string, ...any)        {}

// newShards returns the shard of a single node or, if nodes is 0, the shards of a Cluster whose masters the test
// sets. Nothing runs in the background except what the test starts.
func newShards(t *testing.T, nodes int) *testShards {
	t.Helper()
	l := &testShards{}
	l.now.Store(int64(1000 * time.Hour))
	ctx, stop := context.WithCancel(context.Background())
	var background sync.WaitGroup
	c := Config{
		Context: ctx, Go: background.Go, Now: l.now.Load, ColdStart: ledger.ColdStart{Born: l.now.Load()}, Deadline: 50 * time.Millisecond, Assumed: 10,
		Instance: "a", Ledger: ledger.New[*Rule](4096), Log: noLog{},
		Explain: func(err error) error { return err }, Hint: func(error) string { return "" },
		Joined: func(*Shard) {}, BeforeHeartbeat: func() {}, BreakerChanged: func() {}, DataLost: func(*Shard) {},
		Connect: func(*Shard, int) (Decider, Membership) {
			m := &master{heard: remote.Heard{Size: 1, Generation: "first"}, turned: make(map[string]int)}
			l.masters = append(l.masters, m)
			return m, m
		},
	}
	if nodes == 0 {
		keys, err := remote.NewKeyspace("tl")
		if err != nil {
			t.Fatal(err)
		}
		c.Masters = func(context.Context) (*remote.Masters, error) { return nil, errLost }
		c.Refresh = func(context.Context) {}
		c.Slot = keys.WithHashTags(16).Slot // one for each sixteenth
	}
	l.Shards = New(c)
	l.Windows.Add(24 * time.Hour)
	t.Cleanup(func() { stop(); background.Wait() })
	return l
}

// heartbeat sends a heartbeat.
func (l *testShards) heartbeat(t *testing.T, s *Shard) {
	t.Helper()
	if err := s.Heartbeat(minute); err != nil {
		t.Fatal(err)
	}
}

// endNow ends the incident of a shard whose Redis is back.
func endNow(s *Shard) {
	s.end(s.incident.Load().back, true)
}

// closeBreaker sends probes until they close the breaker.
func (l *testShards) closeBreaker(t *testing.T, s *Shard) {
	t.Helper()
	redistest.Eventually(t, "probes close the breaker", func() bool { s.probe(); return s.Breaker.Closed() })
}

var hasher = local.NewHasher()

func newRule(t *testing.T, name string, lim limit.Limit, a limit.Algorithm) *Rule {
	t.Helper()
	encoded, err := remote.NewRule(lim, a)
	if err != nil {
		t.Fatal(err)
	}
	return &Rule{Name: name, Limit: lim, Algorithm: a, Encoded: encoded, Capacity: lim.Quota(), Sliding: a.Same(limit.SlidingLog()),
		Salt: hasher.Salt(fmt.Sprint(name, lim.Window())), Terms: hasher.Salt(fmt.Sprint(lim, a))}
}

// without returns the decision that a shard makes without Redis because of err.
func without(s *Shard, q *Request, now int64, err error) (d limit.Decision) {
	s.Without(&d, q, now, err)
	return d
}

func request(r *Rule, key remote.UserKey, cost int64) *Request {
	return &Request{Rule: r, Hash: hasher.Hash(string(key)), Key: key, Cost: cost}
}

// Law 11: a process that has lost Redis grants its share. When Redis is back, the process charges what it
// granted, and when all instances have done so, Redis decides alone.
func TestLaw11AnOutageFromTheCutToItsEnd(t *testing.T) {
	l := newShards(t, 1)
	s, m := l.first, l.masters[0]
	r := newRule(t, "r", limit.PerHour(100), limit.SlidingLog())
	m.heard.Size = 4
	l.heartbeat(t, s)
	s.Learned(request(r, "k", 20), &remote.Reply{Granted: 20, Remaining: 80})
	s.Breaker.ForceOpen(errLost)
	if s.State() != Outage || l.State() != Outage || l.Counts.Opened.Load() != 1 {
		t.Fatalf("%v, opened %d times", s.State(), l.Counts.Opened.Load())
	}
	granted := int64(0)
	for range 200 {
		granted += without(s, request(r, "k", 1), l.Now(), errLost).Granted
	}
	if granted != 20 { // a quarter of the units that were free
		t.Errorf("%d granted in the outage, want 20", granted)
	}
	l.closeBreaker(t, s)
	if s.State() != Settling || !s.Settling(r) || !s.Owes() {
		t.Fatalf("%v, settles: %v, owes: %v", s.State(), s.Settling(r), s.Owes())
	}
	for s.Owes() {
		s.chargeSome()
	}
	if m.units() != 20 || l.Counts.Charged.Load() != 20 {
		t.Errorf("%d units charged, %d counted, want 20", m.units(), l.Counts.Charged.Load())
	}
	m.heard.Unsettled = 1 // another instance has not charged yet
	l.now.Add(int64(settleAtLeast))
	if l.heartbeat(t, s); !s.Settling(r) {
		t.Error("does not wait for the other instance")
	}
	m.heard.Unsettled, m.heard.Size = 0, 3 // an instance is not back
	if l.heartbeat(t, s); !s.Settling(r) {
		t.Error("does not wait for who was there before")
	}
	l.now.Add(int64(FleetTTL))
	if l.heartbeat(t, s); s.Settling(r) || s.State() != Healthy {
		t.Errorf("%v when all have charged", s.State())
	}
}

// Law 7: in a large fleet, instances that have lost Redis or settle send no more heartbeats than healthy ones.
func TestLaw7ALargeFleetIsNoStampede(t *testing.T) {
	for size, want := range map[int]time.Duration{4: ProbeEvery, 250: ProbeEvery, 600: 600 * time.Millisecond, 3000: heartbeatEvery} {
		l := newShards(t, 1)
		s := l.first
		l.masters[0].heard.Size = size
		l.heartbeat(t, s)
		check := func(want time.Duration) {
			t.Helper()
			if d := s.untilNextHeartbeat(); d < want || d > want*11/10 {
				t.Errorf("a fleet of %d that is %v: the next heartbeat is in %v, want %v", size, s.State(), d, want)
			}
		}
		check(heartbeatEvery)
		s.Breaker.ForceOpen(errLost)
		check(want)
		l.closeBreaker(t, s)
		check(want) // the shard settles
	}
}

// Once an instance has charged what it granted in an outage, nobody waits for units that it has granted since
// then because single decisions found no room in its queue. In a large fleet, some instance always owes such
// units, and the others would settle for their longest window.
func TestNobodyWaitsForSingleMisses(t *testing.T) {
	l := newShards(t, 1)
	s, m := l.first, l.masters[0]
	r := newRule(t, "r", limit.PerHour(100), limit.SlidingLog())
	miss := func() {
		if !without(s, request(r, "k", 1), l.Now(), remote.ErrNoRoom).Allowed || !s.Owes() {
			t.Fatal("it is not granted, or not owed")
		}
	}
	tells := func(when string, want bool) {
		t.Helper()
		if l.heartbeat(t, s); m.owed != want {
			t.Errorf("%s: it says that it has settled: %v", when, !m.owed)
		}
	}
	l.heartbeat(t, s)
	miss()
	tells("without an outage", false)
	for range 2 {
		s.Breaker.ForceOpen(errLost)
		miss()
		l.closeBreaker(t, s)
		tells("what was granted in the outage is owed", true)
		for s.Owes() {
			s.chargeSome()
		}
		s.chargeSome() // finds nothing more
		miss()
		tells("after a miss", false)
	}
	m.heard.Unsettled = 1
	l.now.Add(int64(settleAtLeast + missesApart)) // so that the next miss is a single one
	if l.heartbeat(t, s); !s.Settling(r) {
		t.Error("it does not wait for another that has not charged")
	}
	m.heard.Unsettled = 0
	miss()
	if l.heartbeat(t, s); s.Settling(r) {
		t.Error("it settles for its own miss")
	}
}

// What was granted because a single decision missed Redis is charged after the next heartbeat.
func TestHeartbeatsWakeTheCharger(t *testing.T) {
	l := newShards(t, 1)
	s := l.first
	if l.heartbeat(t, s); len(s.charger.wake) != 0 {
		t.Error("it is woken though nothing is owed")
	}
	without(s, request(newRule(t, "r", limit.PerHour(100), limit.SlidingLog()), "k", 1), l.Now(), remote.ErrNoRoom)
	if l.heartbeat(t, s); len(s.charger.wake) != 1 {
		t.Error("it is not woken")
	}
}

// Settling ends after the longest window, even if an instance owes units at each of its heartbeats because single
// decisions miss Redis all the time.
func TestSettlingEndsThoughThereAreAlwaysMisses(t *testing.T) {
	l := newShards(t, 1)
	s, m := l.first, l.masters[0]
	r := newRule(t, "r", limit.PerHour(100), limit.SlidingLog())
	l.heartbeat(t, s)
	s.Breaker.ForceOpen(errLost)
	l.closeBreaker(t, s)
	for hour := range 25 {
		if !without(s, request(r, "k", 1), l.Now(), remote.ErrNoRoom).Allowed || !s.Owes() {
			t.Fatal("it is not granted, or not owed")
		}
		if l.heartbeat(t, s); m.owed != (hour < 24) || (s.State() == Healthy) != (hour >= 24) {
			t.Fatalf("%d hours after the outage it is %v, and says that it has not settled: %v", hour, s.State(), m.owed)
		}
		l.now.Add(int64(time.Hour))
	}
}

// Law 11: instances that are still cut off count as members for a while after Redis is back. The settling does not end
// with the heartbeat that finds that one of them has stopped counting.
func TestLaw11AMemberStopsCountingAfterTheCut(t *testing.T) {
	l := newShards(t, 1)
	s, m := l.first, l.masters[0]
	m.heard.Size = 4
	l.heartbeat(t, s)
	s.Breaker.ForceOpen(errLost)
	l.closeBreaker(t, s)
	l.now.Add(int64(settleAtLeast))
	m.delayed = func() { m.heard.Size = 3 }
	if l.heartbeat(t, s); s.State() != Settling {
		t.Errorf("%v, though one of four is not back", s.State())
	}
}

// Law 11: an instance that has no rules yet settles, although no window of a rule must pass: it may soon have some.
func TestLaw11AnInstanceWithoutRulesSettles(t *testing.T) {
	for name, begin := range map[string]func(*testShards, *Shard){
		"another instance owes": func(l *testShards, s *Shard) { l.masters[0].heard.Unsettled = 1; s.settleAnew() },
		"a loss of data":        func(l *testShards, s *Shard) { l.masters[0].heard.Generation = "another"; l.heartbeat(t, s) },
	} {
		t.Run(name, func(t *testing.T) {
			l := newShards(t, 1)
			*l.Windows = durations.Set{}
			s := l.first
			l.heartbeat(t, s)
			begin(l, s)
			l.now.Add(int64(minute))
			if l.heartbeat(t, s); s.State() != Settling {
				t.Errorf("%v", s.State())
			}
		})
	}
}

// A heartbeat measures how fast Redis answers. The time that it takes to compute what is owed does not count, in
// this test because another goroutine holds the lock.
func TestHeartbeatsAreNotLateForWhatIsOwed(t *testing.T) {
	l := newShards(t, 1)
	l.charges.mu.Lock()
	time.AfterFunc(300*time.Millisecond, l.charges.mu.Unlock)
	if err := l.first.Heartbeat(250 * time.Millisecond); err != nil {
		t.Error(err)
	}
}

// A heartbeat that Redis answered in time does not count as a failure if this process read the answer late. A probe does
// not rely on that: decisions after it might be late for the same reason.
func TestAHeartbeatThatIsReadLate(t *testing.T) {
	for _, c := range []struct {
		ofRedis time.Duration // 0: unknown
		opens   bool
	}{{time.Millisecond, false}, {3 * time.Millisecond, true}, {0, true}} {
		synctest.Test(t, func(t *testing.T) {
			l := newShards(t, 1)
			l.Deadline = 2 * time.Millisecond
			s, m := l.first, l.masters[0]
			failed := 0
			l.HeartbeatFailed = func(error) { failed++ }
			m.heard.Took, m.delayed = c.ofRedis, func() { time.Sleep(4 * time.Millisecond) }
			for range 3 {
				s.heartbeat()
			}
			if opened := !s.Breaker.Closed(); opened != c.opens || failed > 0 != c.opens {
				t.Errorf("Redis took %v: the breaker has opened: %v, and %d heartbeats failed", c.ofRedis, opened, failed)
			}
			if err := s.Heartbeat(l.Deadline); err == nil {
				t.Errorf("Redis took %v: a probe was answered in time", c.ofRedis)
			}
		})
	}
}

// Law 11: a heartbeat that is refused because its slot is moving says nothing about how large the fleet is.
func TestLaw11RefusedHeartbeatsDoNotCountTheFleet(t *testing.T) {
	l := newShards(t, 1)
	s, m := l.first, l.masters[0]
	l.Largest = 6
	l.heartbeat(t, s)
	m.err = tryAgain{}
	for range beatsToKnow {
		s.heartbeat()
	}
	if n := s.fleetSize(); n != 6 {
		t.Errorf("a fleet of %d after heartbeats that were refused, want 6 as stated", n)
	}
	m.err = nil
	for range beatsToKnow {
		s.heartbeat()
	}
	if n := s.fleetSize(); n != 1 {
		t.Errorf("a fleet of %d after heartbeats that were answered, want 1", n)
	}
}

// An error of a heartbeat counts for the breaker, unless a slot is moving. Then it is only logged, when several have
// failed in a row.
func TestHeartbeatsThatFail(t *testing.T) {
	l := newShards(t, 1)
	s, m := l.first, l.masters[0]
	var log warnings
	l.Log = &log
	m.err = tryAgain{}
	for i := range 10 {
		if s.heartbeat(); s.State() != Healthy || (len(log) > 0) != (i >= 4) {
			t.Errorf("after %d heartbeats while their slot moves it is %v, and logged %q", i+1, s.State(), log)
		}
	}
	m.err = nil
	if s.heartbeat(); s.failedHeartbeats.Load() != 0 {
		t.Error("the slot has moved, and heartbeats still count as failed")
	}
	m.err = remote.ErrNoAnswer
	for range 3 {
		s.heartbeat()
	}
	if _, err := s.LastFailure(); s.State() != Outage || !errors.Is(err, remote.ErrNoAnswer) || !errors.Is(l.Reason(), remote.ErrNoAnswer) {
		t.Errorf("%v: %v", s.State(), err)
	}
}

// Law 11: while instances from before the cut are not back, an instance reports that it has not settled, even if it has
// charged everything. Otherwise Redis alone would decide for an instance that starts meanwhile, and grant what the
// others have granted without it.
func TestLaw11WhoStartsBeforeAllAreBackSettles(t *testing.T) {
	for name, end := range map[string]func(l *testShards, m *master){
		"all are back":               func(_ *testShards, m *master) { m.heard.Size = 4 },
		"they count no more":         func(l *testShards, _ *master) { l.now.Add(int64(FleetTTL)) },
		"the longest window is over": func(l *testShards, _ *master) { *l.Windows = durations.Set{}; l.Windows.Add(1) },
	} {
		t.Run(name, func(t *testing.T) {
			l := newShards(t, 1)
			s, m := l.first, l.masters[0]
			m.heard.Size = 4
			if l.heartbeat(t, s); m.owed {
				t.Fatal("it has not settled before the outage")
			}
			s.Breaker.ForceOpen(errLost)
			m.heard.Size = 2
			l.closeBreaker(t, s)
			l.now.Add(int64(settleAtLeast))
			for range 2 {
				if l.heartbeat(t, s); s.Owes() || !m.owed || s.State() != Settling {
					t.Fatalf("two of four are back: owes %v, reports so %v, %v", s.Owes(), m.owed, s.State())
				}
			}
			end(l, m)
			l.heartbeat(t, s) // learns it
			if l.heartbeat(t, s); m.owed || s.State() != Healthy {
				t.Errorf("reports that it has not settled %v, %v", m.owed, s.State())
			}
		})
	}
}
