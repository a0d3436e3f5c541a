package tiered_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync/atomic"
	"time"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// AllowUpTo serves work that can be done in part: it grants as many of the units as are left.
func ExampleRule_AllowUpTo() {
	rdb, stop := connect()
	defer stop()
	limiter, err := tiered.New(rdb, tiered.Deadline(time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	mails, err := limiter.Rule("mails", limit.PerHour(100))
	if err != nil {
		log.Fatal(err)
	}

	for range 3 {
		d, err := mails.AllowUpTo(context.Background(), "tenant 4", 70)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(d.Allowed, d.Granted, d.RetryAfter > 0)
	}
	// Output:
	// true 70 false
	// true 30 false
	// false 0 true
}

// This example limits requests whose cost is known only afterwards, under two limits. It holds an estimate under
// both limits, and settles each hold with the actual cost.
func ExampleLimiter_HoldAll() {
	rdb, stop := connect()
	defer stop()
	limiter, err := tiered.New(rdb, tiered.Deadline(time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	perMinute := limiter.MustRule("tokens", limit.PerMinute(1_000), tiered.Unsettled(tiered.GiveBack))
	budget := limiter.MustRule("budget", limit.PerCalendar(100_000, limit.CalendarMonth, time.UTC))
	ctx := context.Background()

	holds, decisions, err := limiter.HoldAll(ctx, time.Minute,
		tiered.Request{Rule: perMinute, Key: "tenant 4", Cost: 800},
		tiered.Request{Rule: budget, Key: "organisation 2", Cost: 800})
	if err != nil || holds == nil {
		log.Fatal(decisions, err)
	}
	for i, hold := range holds {
		defer hold.Cancel(ctx) // does nothing after Settle
		if err := hold.Settle(ctx, 1_100); err != nil {
			log.Fatal(err)
		}
		d, err := []*tiered.Rule{perMinute, budget}[i].Peek(ctx, []string{"tenant 4", "organisation 2"}[i], 1)
		fmt.Println(decisions[i].Remaining, d.Remaining, err)
	}
	// Output:
	// 200 0 <nil>
	// 99200 98900 <nil>
}

// The cost of this request is known only afterwards. The example holds an estimate, and settles it with the actual
// cost, even if that is more than the estimate.
func ExampleRule_Hold() {
	rdb, stop := connect()
	defer stop()
	limiter, err := tiered.New(rdb, tiered.Deadline(time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	tokens := limiter.MustRule("tokens", limit.PerMinute(1_000))
	ctx := context.Background()

	for _, used := range []int64{120, 450} {
		hold, d, err := tokens.Hold(ctx, "user 17", 400, time.Minute)
		if err != nil || hold == nil {
			log.Fatal(d, err)
		}
		defer hold.Cancel(ctx) // does nothing after Settle
		if err := hold.Settle(ctx, used); err != nil {
			log.Fatal(err)
		}
		after, err := tokens.Peek(ctx, "user 17", 1)
		fmt.Println(d.Remaining, after.Remaining, err)
	}
	// Output:
	// 600 880 <nil>
	// 480 430 <nil>
}

// This example charges units that were used without a decision before. They count whether or not they fit.
func ExampleRule_ChargeUsed() {
	rdb, stop := connect()
	defer stop()
	limiter, err := tiered.New(rdb, tiered.Deadline(time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	traffic := limiter.MustRule("bytes", limit.PerHour(1_000_000))
	ctx := context.Background()

	if err := traffic.ChargeUsed(ctx, "tenant 4", 1_200_000); err != nil {
		log.Fatal(err)
	}
	d, err := traffic.Allow(ctx, "tenant 4")
	fmt.Println(d.Allowed, d.Remaining, err)
	// Output: false 0 <nil>
}

// This example changes a limit at run time. What was charged before continues to count.
func ExampleLimiter_ChangeRule() {
	rdb, stop := connect()
	defer stop()
	limiter, err := tiered.New(rdb, tiered.Deadline(time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	var search atomic.Pointer[tiered.Rule] // requests use search.Load()
	search.Store(limiter.MustRule("search", limit.PerMinute(10)))
	ctx := context.Background()

	before, err := search.Load().AllowN(ctx, "user 17", 8)
	if err != nil {
		log.Fatal(err)
	}
	changed, err := limiter.ChangeRule("search", limit.PerMinute(30))
	if err != nil {
		log.Fatal(err) // the old limit stays in force
	}
	search.Store(changed)
	after, err := search.Load().AllowN(ctx, "user 17", 8)
	fmt.Println(before.Remaining, after.Remaining, err)
	// Output: 2 14 <nil>
}

// This example counts a request under two limits in one trip to Redis. Each is decided for itself: the one that has room
// is charged although the other one denies.
func ExampleLimiter_AllowEach() {
	rdb, stop := connect()
	defer stop()
	limiter, err := tiered.New(rdb, tiered.Deadline(time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	perUser, perTenant := limiter.MustRule("user", limit.PerMinute(1)), limiter.MustRule("tenant", limit.PerMinute(100))

	for range 2 {
		ds, err := limiter.AllowEach(context.Background(),
			tiered.Request{Rule: perUser, Key: "user 17", Cost: 1},
			tiered.Request{Rule: perTenant, Key: "tenant 4", Cost: 1})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(ds[0].Allowed, ds[1].Allowed, ds[1].Remaining)
	}
	// Output:
	// true true 99
	// false true 98
}

// The cost of this request is known only afterwards. The example charges the highest possible cost first, and
// then refunds the units that were not used.
func ExampleRule_Refund() {
	rdb, stop := connect()
	defer stop()
	limiter, err := tiered.New(rdb, tiered.Deadline(time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	tokens, err := limiter.Rule("tokens", limit.PerMinute(1_000))
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()

	d, err := tokens.AllowN(ctx, "user 17", 800)
	if err != nil || !d.Allowed {
		log.Fatal(d, err)
	}
	used := int64(250)
	if err := tokens.Refund(ctx, "user 17", &d, d.Granted-used); err != nil {
		log.Print(err) // without a refund, the units stay charged until they leave the window
	}

	peek, err := tokens.Peek(ctx, "user 17", 1)
	fmt.Println(d.Granted, peek.Remaining, err)
	// Output: 250 750 <nil>
}

// This example checks a tenant's quota and an endpoint's limit together. A request that one limit denies is not
// charged to the other.
func ExampleLimiter_AllowAll() {
	rdb, stop := connect()
	defer stop()
	limiter, err := tiered.New(rdb, tiered.Deadline(time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	tenant, err := limiter.Rule("tenant", limit.PerHour(5))
	if err != nil {
		log.Fatal(err)
	}
	search, err := limiter.Rule("search", limit.PerSecond(100_000))
	if err != nil {
		log.Fatal(err)
	}

	for range 2 {
		ds, err := limiter.AllowAll(context.Background(),
			tiered.Request{Rule: tenant, Key: "tenant 4", Cost: 3},
			tiered.Request{Rule: search, Key: "search", Cost: 1},
		)
		if err != nil {
			log.Fatal(err)
		}
		for _, d := range ds {
			fmt.Println(d.Allowed, d.Granted, d.RetryAfter > 0)
		}
	}
	// Output:
	// true 3 false
	// true 1 false
	// false 0 true
	// false 0 false
}

// A worker waits for its turn, but not beyond its context's deadline.
func ExampleRule_Wait() {
	rdb, stop := connect()
	defer stop()
	limiter, err := tiered.New(rdb, tiered.Deadline(time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	pages, err := limiter.Rule("pages", limit.PerHour(1))
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	d, err := pages.Wait(ctx, "crawler", 1)
	fmt.Println(d.Allowed, err)
	// The next page is an hour away, so Wait returns the error now and not after a minute.
	d, err = pages.Wait(ctx, "crawler", 1)
	fmt.Println(d.Allowed, errors.Is(err, limit.ErrWouldExceedDeadline))
	// Output:
	// true <nil>
	// false true
}

// Peek returns the answer that a request would get, for example for a page that shows a user's quota.
func ExampleRule_Peek() {
	rdb, stop := connect()
	defer stop()
	limiter, err := tiered.New(rdb, tiered.Deadline(time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	export, err := limiter.Rule("export", limit.PerHour(100))
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	if _, err := export.AllowN(ctx, "tenant 4", 60); err != nil {
		log.Fatal(err)
	}

	for range 2 {
		d, err := export.Peek(ctx, "tenant 4", 50)
		fmt.Println(d.Allowed, d.Remaining, d.Limit, err)
	}
	// Output:
	// false 40 100 <nil>
	// false 40 100 <nil>
}

// With Lease, a process that gets very many requests for one key has units charged in advance, and spends them
// without asking Redis. WorstCase returns the most units that may pass in a window, leased units included.
func ExampleLease() {
	rdb, stop := connect()
	defer stop()
	limiter, err := tiered.New(rdb, tiered.Deadline(time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	api, err := limiter.Rule("api", limit.PerMinute(50_000), tiered.Lease(10))
	if err != nil {
		log.Fatal(err)
	}
	exact, err := limiter.Rule("exact", limit.PerMinute(50_000), tiered.LeaseWithinLimit(10))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(api.WorstCase(), exact.WorstCase())

	leased := false
	for range 10_000 {
		d, err := api.Allow(context.Background(), "tenant 4")
		if err != nil || !d.Allowed {
			log.Fatal(d, err)
		}
		leased = leased || d.Tier == limit.TierLease
	}
	fmt.Println(leased)
	// Output:
	// 55000 50000
	// true
}

// A dry run shows what a limit would do before it is enforced.
func ExampleDryRun() {
	rdb, stop := connect()
	defer stop()
	limiter, err := tiered.New(rdb, tiered.Deadline(time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	search, err := limiter.Rule("search", limit.PerMinute(2), tiered.DryRun())
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		d, err := search.Allow(context.Background(), "user 17")
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(d.Allowed, d.WouldDeny)
	}
	// Output:
	// true false
	// true false
	// true true
}
