package gcra_test

import (
	"fmt"
	"time"

	"github.com/tierlimit/tierlimit/gcra"
	"github.com/tierlimit/tierlimit/limit"
)

// This example grants ten units a second and at most two at once: two units come at once, then one every 100 ms.
// The owner of the state decides when to charge.
func Example() {
	rate := gcra.NewRate(limit.PerSecond(10).WithBurst(2))
	var state gcra.State
	clock := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for range 4 {
		now := clock.UnixMicro()
		if rate.Free(state, now) >= 1 {
			state = rate.Take(state, now, 1)
			fmt.Println("granted")
			continue
		}
		wait := time.Duration(rate.Wait(state, now, 1)) * time.Microsecond
		fmt.Println("denied, retry after", wait)
		clock = clock.Add(wait)
	}
	fmt.Println("unused again after", time.Duration(rate.Reset(state, clock.UnixMicro()))*time.Microsecond)
	// Output:
	// granted
	// granted
	// denied, retry after 100ms
	// granted
	// unused again after 200ms
}
