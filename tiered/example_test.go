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

// server stands for a Redis server of your own.
func server() (addr string, stop func()) {
	redisServer, stop, err := redistest.StartForExample()
	if err != nil {
		log.Fatal(err)
	}
	return redisServer.Addr(), stop
}

// connect stands for connecting to your Redis server.
func connect() (client *redis.Client, stop func()) {
	addr, end := server()
	client = redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	return client, func() { _ = client.Close(); end() }
}

// This example makes a limiter and a rule, and asks for decisions.
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

// A request can cost more than one unit. A cost that can never fit is an error.
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

// Some keys have limits of their own, such as tenants on a larger plan. Prepare one rule for each plan.
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

// This example sets options of the limiter, and makes a rule that denies all requests while Redis cannot be
// reached.
func ExampleNew() {
	rdb, stop := connect()
	defer stop()
	limiter, err := tiered.New(rdb,
		tiered.Prefix("shop"),
		tiered.Deadline(time.Second),
		tiered.FleetSize(8), // assumed until Redis has reported the real size
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

// Open makes a limiter with a Redis client of its own, whose settings suit a limiter.
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

// This example uses the Redis client that a service already has, with the settings that suit a limiter.
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
