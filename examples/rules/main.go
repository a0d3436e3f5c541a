// Command rules takes its limits from a file, and applies changes of the file while it runs.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net/http"

	"github.com/tierlimit/tierlimit/examples/internal/connect"
	"github.com/tierlimit/tierlimit/httplimit"
	"github.com/tierlimit/tierlimit/rulesfile"
	"github.com/tierlimit/tierlimit/tiered"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "where to listen")
	redis := flag.String("redis", "", "URL of a Redis; without it, a stand-in inside the process")
	path := flag.String("rules", "rules/rules.yaml", "the file")
	flag.Parse()

	limiter, stop, err := connect.Limiter(*redis)
	if err != nil {
		log.Fatal(err)
	}
	defer stop()
	rules, err := rulesfile.Load(limiter, *path)
	if err != nil {
		log.Fatal(err)
	}
	items, err := limitsOf(limiter, rules, "items")
	if err != nil {
		log.Fatal(err)
	}
	export, err := limitsOf(limiter, rules, "export")
	if err != nil {
		log.Fatal(err)
	}
	go rules.Watch(context.Background())

	mux := http.NewServeMux()
	mux.Handle("GET /items", items(say("items\n")))
	mux.Handle("GET /export", export(say("everything\n")))
	log.Fatal(http.ListenAndServe(*addr, mux))
}

// limitsOf returns a middleware that gives each tenant the limit that the file has for it at the time
// of the request.
func limitsOf(limiter *tiered.Limiter, rules *rulesfile.Rules, name string) (func(http.Handler) http.Handler, error) {
	rule, err := rules.Rule(name)
	if err != nil {
		return nil, err
	}
	return httplimit.New(limiter, httplimit.Limit(rule.For(""), tenant, httplimit.RuleForKey(rule.For)))
}

// tenant stands for your own authentication: here anyone may claim to be anyone.
func tenant(r *http.Request) string { return r.Header.Get("Tenant") }

func say(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) })
}
