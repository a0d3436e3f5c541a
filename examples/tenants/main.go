// Command tenants gives each tenant a quota for all endpoints, by the tenant's plan. One expensive
// endpoint also has a limit of its own. A request is charged to both limits or to neither.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net/http"

	"github.com/tierlimit/tierlimit/examples/internal/connect"
	"github.com/tierlimit/tierlimit/httplimit"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
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
	free, err := limiter.Rule("tenant", limit.PerHour(20))
	if err != nil {
		log.Fatal(err)
	}
	gold, err := free.WithLimit(limit.PerHour(2000))
	if err != nil {
		log.Fatal(err)
	}
	export, err := limiter.Rule("export", limit.PerMinute(1))
	if err != nil {
		log.Fatal(err)
	}

	// The tenant's quota, by the tenant's plan. An export takes 10 units of it.
	quota := func(cost int64) httplimit.Option {
		return httplimit.Limit(free, httplimit.Principal(tenantOf),
			httplimit.Cost(func(*http.Request) int64 { return cost }),
			httplimit.RuleForKey(func(tenant string) *tiered.Rule {
				if tenant == "gold-corp" {
					return gold
				}
				return free
			}))
	}
	ordinary, err := httplimit.New(limiter, quota(1))
	if err != nil {
		log.Fatal(err)
	}
	expensive, err := httplimit.New(limiter, quota(10), httplimit.Limit(export, httplimit.Principal(tenantOf)))
	if err != nil {
		log.Fatal(err)
	}

	mux := http.NewServeMux()
	mux.Handle("GET /items", ordinary(say("items\n")))
	mux.Handle("GET /export", expensive(say("everything\n")))
	log.Fatal(http.ListenAndServe(*addr, authenticated(mux)))
}

type tenantKey struct{}

// tenantOf returns the tenant that was authenticated.
func tenantOf(ctx context.Context) string {
	tenant, _ := ctx.Value(tenantKey{}).(string)
	return tenant
}

// authenticated stands for your own authentication: the password is not checked here.
func authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tenant, _, ok := r.BasicAuth()
		if !ok {
			w.Header().Set("WWW-Authenticate", "Basic")
			http.Error(w, "no user name: send one with HTTP basic authentication", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), tenantKey{}, tenant)))
	})
}

func say(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) })
}
