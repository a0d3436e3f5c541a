// Command nethttp limits a handler of net/http by the client's address, also behind reverse proxies.
package main

import (
	"flag"
	"fmt"
	"log"
	"net/http"
	"strings"

	"github.com/tierlimit/tierlimit/examples/internal/connect"
	"github.com/tierlimit/tierlimit/httplimit"
	"github.com/tierlimit/tierlimit/limit"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "where to listen")
	redis := flag.String("redis", "", "URL of a Redis; without it, a stand-in inside the process")
	trusted := flag.String("proxies", "", "reverse proxies to believe X-Forwarded-For, separated by commas")
	flag.Parse()

	limiter, stop, err := connect.Limiter(*redis)
	if err != nil {
		log.Fatal(err)
	}
	defer stop()
	search, err := limiter.Rule("search", limit.PerMinute(3))
	if err != nil {
		log.Fatal(err)
	}

	client := httplimit.KeyFunc(httplimit.ClientAddress)
	if *trusted != "" {
		proxies, err := httplimit.NewProxies("X-Forwarded-For", strings.Split(*trusted, ",")...)
		if err != nil {
			log.Fatal(err)
		}
		client = proxies.ClientAddress
	}
	limits, err := httplimit.New(limiter, httplimit.Limit(search, client))
	if err != nil {
		log.Fatal(err)
	}

	mux := http.NewServeMux()
	mux.Handle("GET /search", limits(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "found nothing for %q\n", r.FormValue("q"))
	})))
	log.Fatal(http.ListenAndServe(*addr, mux))
}
