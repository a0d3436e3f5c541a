package tiered_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// Stats returns the limiter's counters, for a program's own monitoring. Package promlimit exports them to
// Prometheus, module otellimit to OpenTelemetry.
func ExampleLimiter_Stats() {
	rdb, stop := connect()
	defer stop()
	limiter, err := tiered.New(rdb, tiered.Deadline(time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	search, err := limiter.Rule("search", limit.PerHour(2))
	if err != nil {
		log.Fatal(err)
	}
	for range 4 {
		if _, err := search.Allow(context.Background(), "user 17"); err != nil {
			log.Fatal(err)
		}
	}

	stats := limiter.Stats()
	for _, rule := range stats.Rules {
		for _, tier := range rule.Decisions {
			if tier.Allowed+tier.Denied > 0 {
				fmt.Println(rule.Name, tier.Tier, tier.Allowed, tier.Denied)
			}
		}
	}
	fmt.Println(stats.State, stats.FleetSize)
	// Output:
	// search redis 2 1
	// search local 0 1
	// healthy 1
}
