package tiered_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// server stands for a Redis of yours.
func server() (addr string, stop func()) {
	redisServer, stop, err := redistest.StartForExample()
	if err != nil {
		log.Fatal(err)
	}
	return redisServer.Addr(), stop
}

// connect stands for connecting to it.
func connect() (client *redis.Client, stop func()) {
	addr, end := server()
	client = redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	return client, func() { _ = client.Close(); end() }
}

// A limiter, a rule, a decision.
func Example() {
	rdb, stop := connect()
	defer stop()
	limiter, err := tiered.New(rdb, tiered.Deadline(time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()

	search, err := limiter.Rule("search", limit.PerMinute(2))
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		d, err := search.Allow(context.Background(), "user 17")
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(d.Allowed, d.Remaining, d.RetryAfter.Round(time.Second))
	}
	// Output:
	// true 1 0s
	// true 0 0s
	// false 0 1m0s
}

// Requests can cost more than one unit. What can never fit is an error.
func ExampleRule_AllowN() {
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

	d, err := export.AllowN(context.Background(), "tenant 4", 60)
	fmt.Println(d.Allowed, d.Remaining, err)
	d, err = export.AllowN(context.Background(), "tenant 4", 60)
	fmt.Println(d.Allowed, d.Remaining, err)
	_, err = export.AllowN(context.Background(), "tenant 4", 101)
	fmt.Println(errors.Is(err, limit.ErrCostExceedsLimit))
	// Output:
	// true 40 <nil>
	// false 40 <nil>
	// true
}

// Some keys have a limit of their own, such as tenants on a larger plan: prepare a
// rule for each plan.
func ExampleRule_WithLimit() {
	rdb, stop := connect()
	defer stop()
	limiter, err := tiered.New(rdb)
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	free, err := limiter.Rule("api", limit.PerHour(1_000))
	if err != nil {
		log.Fatal(err)
	}
	gold, err := free.WithLimit(limit.PerHour(1_000_000))
	if err != nil {
		log.Fatal(err)
	}

	fmt.Println(free.Algorithm(), free.WorstCase())
	fmt.Println(gold.Algorithm(), gold.WorstCase())
	// Output:
	// sliding-log 1000
	// gcra 1099999
}

// Options of the limiter, and of a rule that must not let anyone through while
// Redis is out of reach.
func ExampleNew() {
	rdb, stop := connect()
	defer stop()
	limiter, err := tiered.New(rdb,
		tiered.Prefix("shop"),
		tiered.Deadline(time.Second),
		tiered.FleetSize(8), // until Redis has told the real size
	)
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	login, err := limiter.Rule("login", limit.Per(5, 15*time.Minute),
		tiered.OnOutage(tiered.Deny),
		tiered.Use(limit.SlidingLog()),
	)
	if err != nil {
		log.Fatal(err)
	}

	d, err := login.Allow(context.Background(), "192.0.2.7")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(d.Allowed, d.Remaining, d.Tier, d.Algorithm, limiter.FleetSize())
	// Output: true 4 redis sliding-log 1
}

// A limiter with a client of its own, set up as a limiter needs it.
func ExampleOpen() {
	addr, stop := server()
	defer stop()
	limiter, err := tiered.Open(&redis.UniversalOptions{Addrs: []string{addr}}, tiered.Deadline(time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	fmt.Println(limiter.Degraded())
	// Output: false
}

// A client that a service has anyway, set up as a limiter needs it.
func ExampleDialer() {
	addr, stop := server()
	defer stop()
	rdb := redis.NewClient(&redis.Options{
		Addr: addr, ContextTimeoutEnabled: true, MaxRetries: -1,
		DialTimeout: time.Second, Dialer: tiered.Dialer(time.Second, nil), // nil: without TLS
	})
	defer rdb.Close()
	limiter, err := tiered.New(rdb, tiered.Deadline(time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	fmt.Println(limiter.Degraded())
	// Output: false
}
