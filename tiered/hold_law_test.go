package tiered

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/tierlimit/tierlimit/internal/model"
	"github.com/tierlimit/tierlimit/internal/outage"
	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/local/ledger"
)

// Law 1: as long as no request uses more than was held for it, held and used units together never exceed the
// bound in any window. The bound is N under a log and a strict counter, and the rule's worst case under the other
// algorithms. Two instances hold, settle, extend, cancel, die, and charge units for good.
func TestLaw1SettledPlusHeldStaysWithinTheLimit(t *testing.T) {
	server := redistest.Shared(t)
	for _, a := range []limit.Algorithm{
		limit.SlidingLog(), limit.SlidingLogZSet(), limit.SlidingCounter(8, limit.Strict), limit.SlidingCounter(8, limit.Estimate),
		limit.GCRA(), limit.FixedWindow(),
	} {
		t.Run(a.String(), func(t *testing.T) {
			prefix, clock, keys := redistest.Prefix(), newVirtual(), 0
			const window = 10 * time.Second
			var rules [2]*Rule
			for i := range rules {
				l := newLimiterOn(t, server.Client(t), prefix, VirtualClock(clock.now))
				rules[i] = newRule(t, l, "r", limit.Per(20, window).WithBurst(20), Use(a), Unsettled(GiveBack))
			}
			rapid.Check(t, func(t *rapid.T) {
				keys++
				checkHeld(t, rules, clock, fmt.Sprint("k", keys), window)
			})
		})
	}
}

// charged is a charge with the units that count at the moment.
type charged struct {
	hold *Hold // nil: charged for good, or settled
	ends time.Time
	at   int64
	now  int64 // the units that count
}

func checkHeld(t *rapid.T, rules [2]*Rule, clock *virtual, key string, window time.Duration) {
	ctx := context.Background()
	var all []charged
	most := rules[0].WorstCase()
	check := func(what string) {
		var stamps, units []int64
		for _, c := range all {
			stamps, units = append(stamps, c.at), append(units, c.now)
		}
		if n := model.MaxInWindow(stamps, units, window.Microseconds()); n > most {
			t.Fatalf("%d units in a window after %s, at most %d may be: %+v", n, what, most, all)
		}
	}
	for range rapid.IntRange(5, 40).Draw(t, "steps") {
		clock.advance(time.Duration(rapid.Int64Range(0, int64(window)/4/1000).Draw(t, "later")) * time.Microsecond)
		r := rules[rapid.IntRange(0, 1).Draw(t, "instance")]
		units := rapid.Int64Range(1, 12).Draw(t, "units")
		switch rapid.IntRange(0, 4).Draw(t, "what") {
		case 0, 1:
			life := time.Duration(rapid.Int64Range(1, 15).Draw(t, "life")) * time.Second
			h, d, err := r.HoldUpTo(ctx, key, units, life)
			if err != nil {
				t.Fatal(err)
			}
			if h != nil {
				all = append(all, charged{h, clock.now().Add(life), d.ChargedAt, h.Units()})
			}
		case 2:
			if d, err := r.AllowN(ctx, key, units); err != nil {
				t.Fatal(err)
			} else if d.Allowed {
				all = append(all, charged{at: d.ChargedAt, now: units})
			}
		default:
			if len(all) == 0 {
				continue
			}
			c := &all[rapid.IntRange(0, len(all)-1).Draw(t, "which")]
			if c.hold == nil || !clock.now().Before(c.ends) {
				continue
			}
			c.now = rapid.Int64Range(0, c.hold.Units()).Draw(t, "used")
			if err := c.hold.Settle(ctx, c.now); err != nil {
				t.Fatal(err)
			}
			c.hold = nil
		}
		for i := range all { // a hold that nobody ends in time holds nothing any more
			if all[i].hold != nil && !clock.now().Before(all[i].ends) {
				all[i].hold, all[i].now = nil, 0
			}
		}
		check("a step")
	}
}

// losingScripts is a connection that randomly closes instead of returning the reply of a script.
type losingScripts struct {
	net.Conn
	odds   *atomic.Int64 // in percent
	script atomic.Bool   // the last command runs a script
}

func (c *losingScripts) Write(p []byte) (int, error) {
	c.script.Store(redistest.RunsDecisions(p))
	return c.Conn.Write(p)
}

func (c *losingScripts) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.script.Load() && rand.Int64N(100) < c.odds.Load() {
		_ = c.Conn.Close()
		return 0, io.EOF
	}
	return n, err
}

// Law 3: used units are charged exactly once, including those beyond the held ones, whichever replies to holds,
// settlements and cancellations are lost, and however often. Units that Redis held for denied callers are given
// back, and nothing is left behind.
func TestLaw3HoldsWithLostReplies(t *testing.T) {
	t.Parallel()
	for _, a := range []limit.Algorithm{limit.SlidingLog(), limit.SlidingCounter(4, limit.Strict), limit.FixedWindow()} {
		t.Run(a.String(), func(t *testing.T) {
			t.Parallel()
			server, prefix := redistest.Start(t), redistest.Prefix()
			var odds atomic.Int64
			client := server.Client(t, func(o *redis.Options) {
				o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
					conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
					return &losingScripts{Conn: conn, odds: &odds}, err
				}
			})
			l := newLimiterOn(t, client, prefix, Deadline(5*time.Second))
			const quota = 100_000
			r := newRule(t, l, "r", limit.PerCalendar(quota, limit.CalendarMonth, time.UTC), OnOutage(Deny))
			if a != limit.FixedWindow() {
				r = newRule(t, l, "log", limit.PerDay(quota), Use(a), OnOutage(Deny))
			}
			var used, granted, denied atomic.Int64
			hold := func(seed uint64) {
				random := rand.New(rand.NewPCG(seed, 7))
				for range 40 {
					h, _, err := r.Hold(context.Background(), "k", 1+random.Int64N(20), time.Hour)
					if err != nil {
						t.Error(err)
						return
					}
					if h == nil {
						denied.Add(1)
						// While Redis is lost, further calls would show nothing.
						redistest.Eventually(t, "Redis is back", func() bool { return !l.Degraded() })
						continue
					}
					granted.Add(1)
					n := random.Int64N(40) // less than was held, or more
					mustSettle(t, h, n)
					used.Add(n)
				}
			}
			odds.Store(30)
			var holders sync.WaitGroup
			for i := range uint64(4) {
				holders.Go(func() { hold(i) })
			}
			holders.Wait()
			odds.Store(0)
			redistest.Eventually(t, "all is settled", func() bool { return l.Stats().Holds.Unsettled == 0 && !l.Degraded() })
			t.Logf("%d holds, %d denied, %d units used, %+v", granted.Load(), denied.Load(), used.Load(), l.Stats().Holds)
			if granted.Load() == 0 || denied.Load() == 0 {
				t.Fatal("nothing was granted, or no reply was lost")
			}
			redistest.Eventually(t, "the cancellations were made", func() bool {
				return server.Client(t).Exists(context.Background(), l.keys.Key(r.name, "k")+":holds").Val() == 0
			})
			if free := peekFrom(t, server, prefix, r, "k"); free != quota-used.Load() {
				t.Errorf("%d units are charged, %d were used", quota-free, used.Load())
			}
			if c := l.Stats().Holds; c.Open != 0 || c.Units != 0 || c.Lost != 0 {
				t.Errorf("%+v", c)
			}
		})
	}
}

// Law 11: a settlement waits while Redis is lost, and is made when Redis is back. Units that are held without
// Redis are settled in this instance's own record, and charged in Redis like all units granted without Redis.
func TestLaw11HoldsAreSettledWithoutRedis(t *testing.T) {
	t.Parallel()
	server, prefix := redistest.Start(t), redistest.Prefix()
	l := newLimiterOn(t, server.Client(t), prefix, Deadline(5*time.Second), RememberDenials(0))
	r := newRule(t, l, "r", limit.PerHour(1000), Use(limit.SlidingLog()))
	less, more := mustHold(t, r, "k", 100, time.Hour), mustHold(t, r, "k", 100, time.Hour)

	server.Pause()
	l.shard.Breaker.ForceOpen(errors.New("lost"))
	// The next two settlements must not take their units from these holds, which Redis does not know.
	a, b := mustHold(t, r, "k", 200, time.Hour), mustHold(t, r, "k", 50, time.Hour)
	mustSettle(t, less, 10)
	mustSettle(t, more, 150)
	if c := l.Stats().Holds; c.Unsettled != 2 || c.Open != 2 {
		t.Errorf("without Redis: %+v", c)
	}
	k := l.key("k")
	recorded := func() int64 {
		return l.ledger.Used(&ledger.Account[*outage.Rule]{
			Hash: k.hash ^ r.inOutage.Salt, Window: time.Hour, Quota: 1000, Owner: r.inOutage, Key: string(k.inRedis()),
		}, l.now())
	}
	if used := recorded(); used != 410 {
		t.Errorf("%d units are on record, 160 were used and 250 are held", used)
	}
	if units, _ := l.ledger.Waiting(); units != 250 {
		t.Errorf("%d units wait for Redis, which knows nothing of 250", units)
	}
	mustSettle(t, a, 20)
	mustSettle(t, b, 80)
	if used := recorded(); used != 260 {
		t.Errorf("%d units are on record, 260 were used", used)
	}
	server.Resume()

	redistest.Eventually(t, "Redis is back and knows", func() bool { return l.Stats().Holds.Unsettled == 0 && !l.shard.Owes() })
	if free := peekFrom(t, server, prefix, r, "k"); free != 740 {
		t.Errorf("%d units are charged, 260 were used", 1000-free)
	}
	if c := l.Stats().Holds; c.Lost != 0 || c.Settled != 4 {
		t.Errorf("%+v", c)
	}
}

// Law 12: Close makes the settlements that wait.
func TestLaw12CloseSettles(t *testing.T) {
	t.Parallel()
	server, prefix := redistest.Start(t), redistest.Prefix()
	l := newLimiterOn(t, server.Client(t), prefix, Deadline(5*time.Second))
	const quota, more = 300, 2*settledAtOnce + 1 // more than are sent at a time
	r := newRule(t, l, "r", limit.PerHour(quota), Use(limit.SlidingLog()))
	h, cancelled := mustHold(t, r, "k", 50, time.Hour), mustHold(t, r, "k", 20, time.Hour)
	cancelled.settledFrom = l.now() + int64(100*time.Millisecond) // Redis may start to hold these units only after Close was called
	waiting := []settlement{{Hold: h, used: 30}, {Hold: cancelled, sent: true}}
	for range more {
		waiting = append(waiting, settlement{Hold: mustHold(t, r, "k", 1, time.Hour)})
	}
	l.holds.mu.Lock()
	l.holds.waiting = waiting
	l.holds.mu.Unlock()
	r.counters.holds.waiting.Add(int64(len(waiting)))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if free := peekFrom(t, server, prefix, r, "k"); free != quota-30 {
		t.Errorf("%d units are free, want %d", free, quota-30)
	}
	if l.holds.put(l, waiting[0]); l.Stats().Holds.Lost != 1 || l.Stats().Holds.Unsettled != 0 {
		t.Errorf("one that comes after Close: %+v", l.Stats().Holds)
	}
	if err := h.Settle(context.Background(), 1); !errors.Is(err, limit.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// Law 7: the length of a key does not affect memory: neither a hold nor a waiting settlement keeps the key
// itself.
func TestLaw7HoldsKeepNoLongKeys(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix(), Deadline(5*time.Second))
	r := newRule(t, l, "r", limit.PerHour(100))
	long := strings.Repeat("x", limit.MaxKey)
	h := mustHold(t, r, long, 1, time.Minute)
	k := l.key(long)
	k.hold = l.newHolding(time.Minute)
	for what, kept := range map[string]callKey{"a hold": h.key, "a cancellation": r.cancelling(&k, 1).key} {
		if len(kept.original) > 0 || len(kept.name) > 64 {
			t.Errorf("%s keeps a key of %d bytes, in Redis %d", what, len(kept.original), len(kept.name))
		}
	}
	mustSettle(t, h, 3)
	if d := mustAllow(t, r, long, 1); d.Remaining != 96 {
		t.Errorf("%+v", d)
	}
}

// Law 3: units that Redis held for a caller whose context had ended are given back. Redis is not asked about
// invalid calls.
func TestLaw3GrantsThatNobodyLearntOfAreGivenBack(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		l := newLimiterOn(t, bubble.Client(t), redistest.Prefix(), Deadline(2*time.Second))
		r := newRule(t, l, "r", limit.PerHour(100), Use(limit.SlidingLog()))
		for name, hold := range map[string]func(ctx context.Context, units int64) error{
			"Hold": func(ctx context.Context, units int64) error {
				_, _, err := r.Hold(ctx, "k", units, time.Hour)
				return err
			},
			"HoldAll": func(ctx context.Context, units int64) error {
				_, _, err := l.HoldAll(ctx, time.Hour, Request{Rule: r, Key: "k", Cost: units})
				return err
			},
		} {
			if err := hold(t.Context(), 101); err == nil || l.Stats().Holds.Unsettled != 0 {
				t.Errorf("%s: after a mistake, %v: %+v", name, err, l.Stats().Holds)
			}
			bubble.Late.Store(int64(300 * time.Millisecond))
			redistest.Eventually(t, "a caller leaves whom Redis has been asked for", func() bool {
				short, leave := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer leave()
				if err := hold(short, 10); !errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("%s: %v", name, err)
				}
				return l.Stats().Holds.Unsettled > 0
			})
			bubble.Late.Store(0)
			redistest.Eventually(t, "the units are given back", func() bool { return l.Stats().Holds.Unsettled == 0 && left(t, r, "k") == 100 })
			if n := recorded(r, "k"); n != 0 {
				t.Errorf("%s: %d units are on record", name, n)
			}
		}
	})
}
