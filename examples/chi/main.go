// Command chi limits routes of a chi router. A middleware of httplimit works as a middleware of chi
// without an adapter.
package main

import (
	"flag"
	"fmt"
	"log"
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/tierlimit/tierlimit/examples/internal/connect"
	"github.com/tierlimit/tierlimit/httplimit"
	"github.com/tierlimit/tierlimit/limit"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "where to listen")
	redis := flag.String("redis", "", "URL of a Redis; without it, a stand-in inside the process")
	flag.Parse()

	limiter, stop, err := connect.Limiter(*redis)
	if err != nil {
		log.Fatal(err)
	}
	defer stop()
	items, err := limiter.Rule("items", limit.PerMinute(3))
	if err != nil {
		log.Fatal(err)
	}
	limits, err := httplimit.New(limiter, httplimit.Limit(items, httplimit.ClientAddress))
	if err != nil {
		log.Fatal(err)
	}

	// Do not use chi's middleware.RealIP: it trusts the headers of every client. See
	// httplimit.NewProxies.
	router := chi.NewRouter()
	router.Get("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "not limited") })
	router.Route("/items", func(router chi.Router) {
		router.Use(limits)
		router.Get("/{id}", func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "item %s\n", chi.URLParam(r, "id"))
		})
	})
	log.Fatal(http.ListenAndServe(*addr, router))
}
