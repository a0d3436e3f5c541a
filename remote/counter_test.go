package remote

import (
	"context"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
)

// A unit charged in the last µs of a sub-window leaves one sub-window earlier than the units of the next µs, also
// if a sub-window is not a whole number of µs.
func TestUnitsOnBothSidesOfASubWindow(t *testing.T) {
	script := NewScript(redistest.Shared(t).Client(t))
	for _, window := range []time.Duration{time.Minute, time.Second + 3*time.Microsecond} {
		for _, k := range []int64{1, 4, 7} {
			rule := newRule(t, limit.Per(10, window), limit.SlidingCounter(int(k), limit.Strict))
			begins := func(i int64) int64 { return (i*window.Microseconds() + k - 1) / k }
			for i := int64(1_000_000); i < 1_000_010; i++ {
				key := redistest.Prefix() + "k"
				decide(t, script, key, rule, begins(i-k-1), 3) // these leave when sub-window i begins
				decide(t, script, key, rule, begins(i)-1, 1)
				decide(t, script, key, rule, begins(i), 2)
				for at, remaining := range map[int64]int64{begins(i+k) - 1: 7, begins(i + k): 8, begins(i+k+1) - 1: 8, begins(i + k + 1): 10} {
					replies, err := script.Run(context.Background(), []Entry{{Key: key, Rule: rule, Operation: lua.Peek, Cost: 1}}, at)
					if err != nil || replies[0].Remaining != remaining {
						t.Fatalf("k=%d, window %v, sub-window %d begins at %d µs: %d µs later %+v, %v; want %d remaining",
							k, window, i, begins(i), at-begins(i), replies, err, remaining)
					}
				}
			}
		}
	}
}
