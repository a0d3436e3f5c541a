// The stand-in for Redis needs a 64-bit platform.

//go:build !(386 || arm || mips || mipsle)

package tiered_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/tierlimit/tierlimit/embedded"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// This example makes two decisions for one request, one after the other, within 200 ms for both together.
func ExampleDecideBy() {
	limiter, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	tenants := limiter.MustRule("tenants", limit.PerMinute(1000))
	exports := limiter.MustRule("exports", limit.PerHour(10))

	ctx := tiered.DecideBy(context.Background(), time.Now().Add(200*time.Millisecond))
	d, err := tenants.Allow(ctx, "tenant 4")
	if err == nil && d.Allowed {
		d, err = exports.Allow(ctx, "user 17") // the outage policy decides if the 200 ms are over
	}
	fmt.Println(d.Allowed, err)
	// Output: true <nil>
}
