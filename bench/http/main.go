// Command http serves a handler that does nothing, bare and behind limits, so that a load generator can compare them
// (see "What it costs" in docs/http.md):
//
//	go -C bench run ./http -redis redis://127.0.0.1:6379
//	wrk -t1 -c32 -d8s --latency http://127.0.0.1:8080/bare
//
// With -ask it is a load generator itself, whose requests come at random, and are for many keys:
//
//	go -C bench run ./http -ask http://127.0.0.1:8080/keys -connections 32 -rate 9000 -for 2s
//	go -C bench run ./http -ask http://127.0.0.1:8080/keys/redis_rate -connections 32 -rate 9000 -for 2s
package main

import (
	"flag"
	"log"
	"net/http"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/httplimit"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "where to listen")
	url := flag.String("redis", "redis://127.0.0.1:6379", "the Redis to count in")
	target := flag.String("ask", "", "send requests to this `URL` in place of serving")
	connections := flag.Int("connections", 32, "with -ask: how many requests may be under way")
	rate := flag.Float64("rate", 0, "with -ask: requests per second, at random times; 0: each connection asks as soon as it was answered")
	span := flag.Duration("for", 2*time.Second, "with -ask: how long")
	flag.Parse()
	if *target != "" {
		if err := ask(*target, *connections, *rate, *span); err != nil {
			log.Fatal(err)
		}
		return
	}
	serve(*addr, *url)
}

func serve(addr, url string) {
	options, err := redis.ParseURL(url)
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := tiered.Open(&redis.UniversalOptions{Addrs: []string{options.Addr}, Username: options.Username, Password: options.Password, DB: options.DB})
	if err != nil {
		log.Fatal(err)
	}
	const plenty = 1_000_000_000
	behind := func(limits ...httplimit.Option) http.Handler {
		middleware, err := httplimit.New(limiter, limits...)
		if err != nil {
			log.Fatal(err)
		}
		return middleware(http.HandlerFunc(hello))
	}
	rule := func(name string, quota int64) *tiered.Rule {
		r, err := limiter.Rule(name, limit.PerHour(quota))
		if err != nil {
			log.Fatal(err)
		}
		return r
	}
	alone, one, two, third := rule("alone", plenty), rule("one", plenty), rule("two", plenty), rule("three", plenty)
	http.HandleFunc("/bare", hello)
	http.HandleFunc("/rule", func(w http.ResponseWriter, r *http.Request) { // the decision without middleware
		if _, err := alone.Allow(r.Context(), "192.0.2.1"); err != nil {
			log.Print(err)
		}
		hello(w, r)
	})
	http.HandleFunc("/keys", func(w http.ResponseWriter, r *http.Request) { // the same for many keys
		if d, err := alone.Allow(r.Context(), r.URL.RawQuery); err != nil || !d.Allowed || d.Degraded() {
			http.Error(w, "not allowed by Redis", http.StatusServiceUnavailable)
			return
		}
		hello(w, r)
	})
	theirs := redis_rate.NewLimiter(redis.NewClient(options))
	http.HandleFunc("/keys/redis_rate", func(w http.ResponseWriter, r *http.Request) {
		if d, err := theirs.Allow(r.Context(), r.URL.RawQuery, redis_rate.PerHour(plenty)); err != nil || d.Allowed == 0 {
			http.Error(w, "not allowed", http.StatusServiceUnavailable)
			return
		}
		hello(w, r)
	})
	http.Handle("/limited", behind(httplimit.Limit(one, httplimit.ClientAddress)))
	http.Handle("/both", behind(httplimit.Limit(two, httplimit.ClientAddress), httplimit.Limit(third, httplimit.Everyone)))
	http.Handle("/denied", behind(httplimit.Limit(rule("denied", 1), httplimit.ClientAddress)))
	log.Fatal(http.ListenAndServe(addr, nil))
}

func hello(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello\n")) }
