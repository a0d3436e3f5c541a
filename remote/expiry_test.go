package remote

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

func pexpireTime(t *testing.T, client *redis.Client, key string) int64 {
	t.Helper()
	at, err := client.PExpireTime(context.Background(), key).Result()
	if err != nil || at <= 0 {
		t.Fatalf("PEXPIRETIME %q: %v, %v", key, at, err)
	}
	return at.Milliseconds()
}

// Law 8: a key expires in the very millisecond from which on it can change no
// decision, on Redis's own clock; and a denial does not prolong it. What GCRA granted
// can change one for a window, if the rule's algorithm changes, though the debt may be
// paid off before.
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
				matters := charged.ResetAfter
				if a == limit.GCRA() {
					matters = max(matters, l.Window())
				}
				want := (charged.Clock + matters.Microseconds() + 999) / 1000
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

// Law 5 with law 8: after Redis's clock stepped back, a key is not kept for longer
// than before, and not locked either.
func TestLaw5ClockStepBackMovesTheExpiryAlong(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	script := NewScript(client)
	for _, a := range configurations() {
		t.Run(a.String(), func(t *testing.T) {
			l := limit.PerMinute(1)
			rule := newRule(t, l, a)
			key := redistest.Prefix() + "stepped"
			// Charged under a clock a day ahead: to the server this is as if its own
			// clock then went back by a day.
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
