package tiertest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiertest"
)

func ExampleNew() {
	_ = func(t *testing.T) { // your test
		limiter, clock := tiertest.New(t)
		login := limiter.MustRule("login", limit.Per(3, 15*time.Minute))
		for range 3 {
			_, _ = login.Allow(t.Context(), "alice")
		}
		if d, _ := login.Allow(t.Context(), "alice"); d.Allowed {
			t.Error("a fourth attempt is allowed")
		}
		clock.Advance(15 * time.Minute)
		if d, _ := login.Allow(t.Context(), "alice"); !d.Allowed {
			t.Error("alice is locked out for longer than 15 minutes")
		}
	}
}

func ExampleClock() {
	clock := tiertest.NewClock(time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC))
	clock.Advance(90 * time.Second)
	fmt.Println(clock.Now().UTC().Format(time.TimeOnly))
	// Output: 12:01:30
}
