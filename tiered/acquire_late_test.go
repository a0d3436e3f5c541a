package tiered

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// courier delivers commands about slots to Redis in the way that a test specifies.
type courier struct {
	carry  atomic.Pointer[carry] // nil: deliver normally
	copies redis.UniversalClient // sends the copies, because the connection of a failed command is closed
}

// newCourier returns a courier and the client that it is attached to.
func newCourier(t testing.TB, server redistest.Endpoint) (*courier, redis.UniversalClient) {
	c, client := &courier{copies: server.Client(t)}, server.Client(t)
	client.AddHook(c)
	return c, client
}

// carry delivers one command. It may call send, which sends the command, and sendCopy, which sends a copy and may
// be called later, when no caller waits for the answer any more.
type carry func(send, sendCopy func() error) error

func (c *courier) from(f carry) { c.carry.Store(&f) }

func (c *courier) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *courier) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (c *courier) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		f := c.carry.Load()
		if f == nil || !isAboutSlots(cmd) {
			return next(ctx, cmd)
		}
		copied := redis.NewCmd(context.Background(), cmd.Args()...)
		err := (*f)(func() error { return next(ctx, cmd) }, func() error { return c.copies.Process(context.Background(), copied) })
		if err != nil {
			cmd.SetErr(err)
		}
		return err
	}
}

func isAboutSlots(cmd redis.Cmder) bool {
	for _, arg := range cmd.Args() {
		if key, ok := arg.(string); ok && strings.HasSuffix(key, ":slots") {
			return true
		}
	}
	return false
}

// fates are the possible outcomes of a command that gets no answer. The channel over is closed when the outcome
// has occurred. meanwhile is called between two statements of what is held, if there are two.
var fates = map[string]func(c *courier, meanwhile func()) (over <-chan struct{}){
	"it is not run": func(c *courier, _ func()) <-chan struct{} {
		return c.script(func(_, _ func() error) error { return io.ErrUnexpectedEOF })
	},
	"it is run": func(c *courier, _ func()) <-chan struct{} {
		return c.script(func(_, sendCopy func() error) error { return cmp.Or(sendCopy(), io.ErrUnexpectedEOF) })
	},
	"it is run after Redis was told what is held": func(c *courier, _ func()) <-chan struct{} {
		var late func() error
		return c.script(
			func(_, sendCopy func() error) error { late = sendCopy; return io.ErrUnexpectedEOF },
			func(send, _ func() error) error { return cmp.Or(send(), late()) },
		)
	},
	"Redis is told what was held after it was told what is": func(c *courier, meanwhile func()) <-chan struct{} {
		var late func() error
		return c.script(
			func(_, _ func() error) error { return io.ErrUnexpectedEOF },
			func(_, sendCopy func() error) error { late = sendCopy; meanwhile(); return io.ErrUnexpectedEOF },
			func(send, _ func() error) error { return cmp.Or(send(), late()) },
		)
	},
}

// script delivers the next commands in the given ways, one after the other, and all later commands normally.
func (c *courier) script(commands ...carry) (over <-chan struct{}) {
	var mu sync.Mutex
	done := make(chan struct{})
	c.from(func(send, sendCopy func() error) error {
		mu.Lock()
		defer mu.Unlock()
		if len(commands) == 0 {
			return send()
		}
		first := commands[0]
		if commands = commands[1:]; len(commands) == 0 {
			defer close(done)
		}
		return first(send, sendCopy)
	})
	return done
}

// Law 13: whether or not Redis has run a command whose answer was lost, Redis soon knows exactly what is held.
// The TTL is so long that neither its end nor a renewal corrects anything in this test.
func TestLaw13LostAnswersNeitherKeepUnitsNorGiveThemOutTwice(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	release := func(_ *Rule, held []*Slot) { held[0].Release() }
	acquire := func(r *Rule, _ []*Slot) {
		if slot, d, err := r.Acquire(context.Background(), "k", 1); slot != nil || d.Allowed || err != nil {
			t.Errorf("an answer was lost: %v, %+v, %v", slot, d, err)
		}
	}
	var all sync.WaitGroup // each subtest mostly waits
	defer all.Wait()
	for fate, becomes := range fates {
		for what, test := range map[string]struct {
			held, after int64
			do          func(r *Rule, held []*Slot)
		}{
			"a release of all":               {1, 0, release},
			"a release of some":              {2, 1, release},
			"an acquisition":                 {0, 0, acquire},
			"an acquisition, holding others": {1, 1, acquire},
		} {
			all.Go(func() {
				t.Run(what+", "+fate, func(t *testing.T) {
					checkUnanswered(t, server, becomes, test.held, test.after, test.do)
				})
			})
		}
	}
}

func checkUnanswered(t *testing.T, server redistest.Endpoint, becomes func(*courier, func()) <-chan struct{}, holds, after int64, do func(*Rule, []*Slot)) {
	const n, ttl = 3, time.Minute
	c, client := newCourier(t, server)
	prefix := redistest.Prefix()
	here := newLimiterOn(t, client, prefix, Deadline(time.Second), RememberDenials(0))
	there := newLimiterOn(t, server.Client(t), prefix, RememberDenials(0))
	// On a busy machine, a limiter may not reach Redis in time at its start. The limiter would then grant slots
	// without Redis.
	redistest.Eventually(t, "Redis decides", func() bool { return here.State() == Healthy && there.State() == Healthy })
	a := newRule(t, here, "jobs", limit.Concurrent(n), SlotTTL(ttl)) // Approximate grants without Redis only in an outage
	b := newRule(t, there, "jobs", limit.Concurrent(n), SlotTTL(ttl))
	var held []*Slot
	for range holds {
		held = append(held, mustAcquire(t, a, "k", 1))
	}
	known := func() int64 {
		d, err := b.Peek(context.Background(), "k", 1)
		if err != nil || d.Tier != limit.TierRedis {
			t.Errorf("%+v, %v", d, err)
		}
		return n - d.Remaining
	}
	over := becomes(c, func() {
		if after > 0 {
			held[len(held)-1].Release()
			after = 0
		}
	})
	do(a, held)
	redistest.Eventually(t, "it has come so", func() bool {
		select {
		case <-over:
			return true
		default:
			return false
		}
	})
	redistest.Eventually(t, "Redis knows what is held", func() bool { return here.Stats().Slots.Units == after && known() == after })
	redistest.Eventually(t, "the doubt is over", func() bool {
		slot, _, err := a.Acquire(context.Background(), "k", n-after)
		if err != nil {
			t.Fatal(err)
		}
		return slot != nil
	})
	if held := known(); held != n {
		t.Errorf("%d units are held, and Redis knows of %d", n, held)
	}
}

// Law 13: however slow the answer to the acquisition or renewal of a slot is, the holder knows that the slot is
// lost before Redis gives its units to another process. In this test, the answer takes a third of the TTL, and
// then the process is cut off.
func TestLaw13TheTimeOfASlotBeginsBeforeRedisIsAsked(t *testing.T) {
	t.Parallel()
	const ttl, slow = 3 * time.Second, time.Second
	server := redistest.Shared(t)
	var all sync.WaitGroup
	defer all.Wait()
	for what, before := range map[string]int{"acquired": 0, "kept": 1} {
		all.Go(func() {
			t.Run(what, func(t *testing.T) {
				c, client := newCourier(t, server)
				prefix := redistest.Prefix()
				a := newRule(t, newLimiterOn(t, client, prefix, Deadline(2*slow)), "jobs", limit.Concurrent(1), SlotTTL(ttl), OnOutage(Deny))
				b := newRule(t, newLimiterOn(t, server.Client(t), prefix), "jobs", limit.Concurrent(1), SlotTTL(ttl), DenialLife(0))
				var commands []carry
				for range before {
					commands = append(commands, func(send, _ func() error) error { return send() })
				}
				commands = append(commands, func(send, _ func() error) error {
					c.from(func(_, _ func() error) error { return io.ErrUnexpectedEOF })
					err := send()
					time.Sleep(slow)
					return err
				})
				answered := c.script(commands...)
				slot := mustAcquire(t, a, "k", 1)
				<-answered
				redistest.Eventually(t, "another gets it", func() bool {
					taken, _, err := b.Acquire(context.Background(), "k", 1)
					if err != nil {
						t.Fatal(err)
					}
					if taken != nil && slot.Held() {
						t.Fatal("both hold it")
					}
					return taken != nil
				})
			})
		})
	}
}

// Law 13: units that Redis granted to a caller who has left are given back. If Redis turns out to know of fewer
// units than are held, the process corrects it at once. The TTL is so long that no renewal corrects anything in
// this test.
func TestLaw13UnitsThatRedisDoesNotKnowAreCorrected(t *testing.T) {
	server, prefix := redistest.Shared(t), redistest.Prefix()
	c, client := newCourier(t, server)
	l := newLimiterOn(t, client, prefix, RememberDenials(0))
	r := newRule(t, l, "jobs", limit.Concurrent(3), SlotTTL(time.Minute))
	known := func(key string) int64 { return 3 - mustPeek(t, r, key).Remaining }

	ctx, cancel := context.WithCancel(context.Background())
	c.script(func(send, _ func() error) error { defer cancel(); return send() })
	if slot, _, err := r.Acquire(ctx, "left", 2); slot != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v", slot, err)
	}
	redistest.Eventually(t, "the units are given back", func() bool { return known("left") == 0 && l.Stats().Slots.Units == 0 })

	one := mustAcquire(t, r, "forgotten", 1)
	mustAcquire(t, r, "forgotten", 1)
	if err := server.Client(t).Del(context.Background(), fmt.Sprintf("%s:{forgotten}:jobs:slots", prefix)).Err(); err != nil {
		t.Fatal(err)
	}
	one.Release()
	redistest.Eventually(t, "Redis knows of the other one", func() bool { return known("forgotten") == 1 })
}

func mustPeek(t testing.TB, r *Rule, key string) limit.Decision {
	t.Helper()
	d, err := r.Peek(context.Background(), key, 1)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Law 13: TakeAll, like Acquire, grants no slot that is lost already when its answer comes, and charges nothing.
func TestLaw13TakeAllGrantsNoLostSlots(t *testing.T) {
	t.Parallel()
	const ttl = 100 * time.Millisecond
	client, slow := redistest.Shared(t).Client(t), &slow{by: 2 * ttl}
	client.AddHook(slow)
	l := newLimiterOn(t, client, redistest.Prefix(), Deadline(5*time.Second))
	slots := newRule(t, l, "streams", limit.Concurrent(2), SlotTTL(ttl))
	charged := newRule(t, l, "hour", limit.PerHour(100), Use(limit.SlidingLog()))
	slow.on.Store(true)
	grants, decisions, err := l.TakeAll(t.Context(), Request{Rule: charged, Key: "a", Cost: 1}, Request{Rule: slots, Key: "a", Cost: 1})
	if err != nil || grants != nil || decisions[1].Allowed || decisions[1].RetryAfter == 0 {
		t.Errorf("%+v, %+v, %v", grants, decisions, err)
	}
	redistest.Eventually(t, "nothing is charged", func() bool { return peek(t, charged, "a").Remaining == 100 })
}
