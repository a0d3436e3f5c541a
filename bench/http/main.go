// Command http serves a handler that does nothing, bare and behind limits, so that a load generator can compare them
// (see "What it costs" in docs/http.md):
//
//	go -C bench run ./http -redis redis://127.0.0.1:6379
//	wrk -t1 -c32 -d8s --latency http://127.0.0.1:8080/bare
package main

import (
	"flag"
	"log"
	"net/http"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/httplimit"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "where to listen")
	url := flag.String("redis", "redis://127.0.0.1:6379", "the Redis to count in")
	flag.Parse()
	options, err := redis.ParseURL(*url)
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
	http.Handle("/limited", behind(httplimit.Limit(one, httplimit.ClientAddress)))
	http.Handle("/both", behind(httplimit.Limit(two, httplimit.ClientAddress), httplimit.Limit(third, httplimit.Everyone)))
	http.Handle("/denied", behind(httplimit.Limit(rule("denied", 1), httplimit.ClientAddress)))
	log.Fatal(http.ListenAndServe(*addr, nil))
}

func hello(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello\n")) }
