package remote

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
)

func pexpireTime(t *testing.T, client *redis.Client, key string) int64 {
	t.Helper()
	at := redistest.ExpireTime(t, client, key)
	if at <= 0 {
		t.Fatalf("when %q expires: %v", key, at)
	}
	return at.Milliseconds()
}

// expiryOf returns, in ms, when a key should expire according to the reply to its last charge: when the key can
// change no decision any more. Under GCRA, units can change a decision for a whole window if the rule's algorithm
// changes, although the debt may be paid off earlier. GCRA and the log also leave the expiry unchanged for a
// sixteenth of the window.
func expiryOf(l limit.Limit, a limit.Algorithm, r Reply) int64 {
	matters := r.Clock + r.ResetAfter.Microseconds()
	if a == limit.GCRA() || a == limit.SlidingLog() {
		matters = max(matters, r.Clock+l.Window().Microseconds())
		slack := max(1, l.Window().Microseconds()/16)
		matters += slack - matters%slack
	}
	return (matters + 999) / 1000
}

// Law 8: a key expires exactly in the millisecond from which on it can no longer change a decision, on Redis's own
// clock. A denial does not prolong its life.
func TestLaw8KeysExpireWhenTheyNoLongerMatter(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	script := NewScript(client)
	for _, a := range configurations() {
		for _, burst := range []int64{1, 14} {
			t.Run(fmt.Sprintf("%v burst=%d", a, burst), func(t *testing.T) {
				l := limit.Per(7, 90*time.Second+123*time.Microsecond).WithBurst(burst)
				rule := newRule(t, l, a)
				key := redistest.Prefix() + "expiring"
				charged := decide(t, script, key, rule, 0, a.Capacity(l))
				if charged.Status != Allowed || charged.ResetAfter <= 0 {
					t.Fatalf("first charge: %+v", charged)
				}
				want := expiryOf(l, a, charged)
				if got := pexpireTime(t, client, key); got != want {
					t.Errorf("expires at %d ms, matters until %d ms", got, want)
				}
				if d := decide(t, script, key, rule, 0, a.Capacity(l)); d.Status != Denied {
					t.Fatalf("second charge: %+v", d)
				}
				if got := pexpireTime(t, client, key); got != want {
					t.Errorf("a denial moved the expiry from %d to %d ms", want, got)
				}
			})
		}
	}
}

// Law 8: a key in constant use, with charges, refunds, charges of the past and changes of its limit, does not
// expire early, although most of these operations do not set its expiry.
func TestLaw8KeysInUseDoNotExpireEarly(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	script := NewScript(client)
	type configuration struct {
		a     limit.Algorithm
		burst int64 // as a multiple of the limit; paying it off may take longer than a window
	}
	all := []configuration{{limit.GCRA(), 10}}
	for _, a := range configurations() {
		all = append(all, configuration{a, 0})
	}
	for _, c := range all {
		a := c.a
		t.Run(fmt.Sprint(a, " burst=", c.burst), func(t *testing.T) {
			l, other := limit.Per(80_000, 160*time.Millisecond), limit.Per(90_000, 240*time.Millisecond)
			if a == limit.SlidingLogZSet() { // which has a smaller maximum
				l, other = limit.Per(4_000, 160*time.Millisecond), limit.Per(4_500, 240*time.Millisecond)
			}
			if c.burst > 0 {
				l, other = l.WithBurst(c.burst*l.Quota()), other.WithBurst(c.burst*other.Quota())
			}
			rules := []*Rule{newRule(t, l, a), newRule(t, other, a)}
			windows := []time.Duration{l.Window(), other.Window()}
			random := rand.New(rand.NewPCG(1, 2))
			key := redistest.Prefix() + "used"
			began := decide(t, script, key, rules[0], 0, 1)
			kept, last, sequence := 0, began, int64(0)
			// The loop takes more than two windows. On a slow machine the expiry passes between two charges more
			// often; there it takes as long as necessary to see the expiry kept.
			enough := func() bool { return last.Clock-began.Clock > 300_000 && (a != limit.GCRA() || kept >= 100) }
			for before := int64(0); !enough(); {
				if last.Clock-began.Clock > 120_000_000 {
					t.Fatalf("the expiry was kept %d times only: nothing is tested", kept)
				}
				which := random.IntN(4) / 3 // the other limit is used seldom
				e := Entry{Key: key, Rule: rules[which], Cost: 1 + random.Int64N(3)}
				switch random.IntN(20) {
				case 2:
					e.Cost = 1 + random.Int64N(a.Capacity(other)/20)
				case 0:
					e.Operation, e.Charged, e.Stamp = lua.Refund, e.Cost, last.Stamp
				case 1:
					sequence++
					e = past(key, e.Rule, sequence, Charge{5, time.Duration(random.Int64N(int64(200 * time.Millisecond)))})
				}
				last = runAll(t, script, []Entry{e})[0]
				expires := redistest.ExpireTime(t, client, key)
				if expires == -2 || last.Granted == 0 {
					continue // the key has been emptied or has expired, or nothing was written
				}
				at := expires.Milliseconds() // 0 if it never expires
				matters := last.ResetAfter
				if a == limit.GCRA() && e.Operation != lua.Refund {
					matters = max(matters, windows[which]) // to an algorithm that the rule changes to
				}
				if matters := (last.Clock + matters.Microseconds()) / 1000; at < matters {
					t.Fatalf("operation %d: expires at %d ms, matters until %d ms", e.Operation, at, matters)
				}
				if at == before {
					kept++
				}
				before = at
			}
		})
	}
}

// Laws 5 and 8: after Redis's clock has stepped back, a key is neither kept for longer than before nor locked.
func TestLaw5ClockStepBackMovesTheExpiryAlong(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	script := NewScript(client)
	for _, a := range configurations() {
		t.Run(a.String(), func(t *testing.T) {
			l := limit.PerMinute(1)
			rule := newRule(t, l, a)
			key := redistest.Prefix() + "stepped"
			// The charge is made under a clock that is a day ahead. To the server this is as if its own clock then
			// went back by a day.
			ahead := time.Now().Add(24 * time.Hour).UnixMicro()
			charged := decide(t, script, key, rule, ahead, 1)
			client.PExpireAt(context.Background(), key, time.UnixMicro(ahead).Add(charged.ResetAfter))

			d := decide(t, script, key, rule, 0, 1)
			if d.Status != Denied {
				t.Fatalf("granted again after the step: %+v", d)
			}
			if d.RetryAfter > 2*time.Minute {
				t.Errorf("locked for %v", d.RetryAfter)
			}
			left := client.PTTL(context.Background(), key).Val()
			if diff := left - d.ResetAfter; diff < -2*time.Second || diff > 2*time.Second {
				t.Errorf("expires in %v, but matters for %v", left, d.ResetAfter)
			}
			again := decide(t, script, key, rule, 0, 1)
			if again.RetryAfter > d.RetryAfter {
				t.Errorf("the key's time stands still: retry after %v, then %v", d.RetryAfter, again.RetryAfter)
			}
		})
	}
}

// Law 8: a fixed window whose rule got a shorter window expires at the end of the shorter one, also if units were
// given back before the key was charged again.
func TestLaw8AShorterFixedWindowExpiresSooner(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	script := NewScript(client)
	long := newRule(t, limit.Per(10, 8760*time.Hour), limit.FixedWindow())
	short := newRule(t, limit.Per(10, 12*time.Hour), limit.FixedWindow())
	key := redistest.Prefix() + "shorter"
	charged := decide(t, script, key, long, 0, 2)
	runAll(t, script, []Entry{{Key: key, Rule: short, Operation: lua.Refund, Cost: 1, Charged: 2, Stamp: charged.Stamp}})
	if expires := pexpireTime(t, client, key); expires != expiryOf(limit.Per(10, 8760*time.Hour), limit.FixedWindow(), charged) {
		t.Fatalf("the key expires at %d ms already", expires)
	}
	again := decide(t, script, key, short, 0, 1)
	if again.Remaining != 8 {
		t.Fatalf("%+v, want 2 of 10 units in use", again)
	}
	if got, want := pexpireTime(t, client, key), expiryOf(limit.Per(10, 12*time.Hour), limit.FixedWindow(), again); got != want {
		t.Errorf("expires at %d ms, matters until %d ms", got, want)
	}
}

// Law 5: a key whose expiry somebody has removed is not forgotten when Redis's clock steps back.
func TestLaw5AStepBackOfAKeyWithoutExpiry(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	script, key, rule := NewScript(client), redistest.Prefix()+"k", newRule(t, limit.PerHour(10), limit.GCRA())
	r := runAll(t, script, []Entry{{Key: key, Rule: rule, Cost: 10}})[0]
	const step = 100_000_000 // as if the clock had been that much ahead
	raw := []byte(client.Get(t.Context(), key).Val())
	for at, value := range map[int]int64{1: r.Stamp, 15: readInt(string(raw), 15, 7)} { // newest, theoretical arrival time
		copy(raw[at:], appendInt(nil, value+step, 7))
	}
	client.Set(t.Context(), key, raw, 0)
	runAll(t, script, []Entry{{Key: key, Rule: rule, Operation: lua.Peek, Cost: 1}})
	if life := client.PTTL(t.Context(), key).Val(); life != -1 {
		t.Errorf("it will be forgotten in %v", life)
	}
}
