package tiered_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// A request to a language model falls under three limits: one counts requests, one counts tokens, whose number is
// known only afterwards, and one bounds the streams that are open at the same time.
func ExampleLimiter_TakeAll() {
	rdb, stop := connect()
	defer stop()
	limiter, err := tiered.New(rdb, tiered.Deadline(time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	requests := limiter.MustRule("requests", limit.PerMinute(60))
	tokens := limiter.MustRule("tokens", limit.PerMinute(1_000), tiered.Unsettled(tiered.GiveBack))
	streams := limiter.MustRule("streams", limit.Concurrent(1))
	ctx := context.Background()
	begin := func() (tiered.Grants, []limit.Decision) {
		grants, decisions, err := limiter.TakeAll(ctx,
			tiered.Request{Rule: requests, Key: "tenant 4", Cost: 1},
			tiered.Request{Rule: tokens, Key: "tenant 4", Cost: 300, Hold: time.Minute},
			tiered.Request{Rule: streams, Key: "tenant 4", Cost: 1})
		if err != nil {
			log.Fatal(err)
		}
		return grants, decisions
	}

	first, ds := begin()
	defer first.End(ctx) // does nothing after Settle
	fmt.Println("granted:", ds[0].Remaining, ds[1].Remaining, ds[2].Remaining)
	second, ds := begin()
	fmt.Println("denied:", second == nil, ds[0].HeldBack, ds[1].HeldBack, ds[2].Denied())
	if err := first.Settle(ctx, 120); err != nil {
		log.Fatal(err)
	}
	second, ds = begin()
	defer second.End(ctx)
	fmt.Println("granted:", ds[0].Remaining, ds[1].Remaining, ds[2].Remaining)
	// Output:
	// granted: 59 700 0
	// denied: true true true true
	// granted: 58 580 0
}
