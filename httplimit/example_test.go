// The stand-in for Redis needs a 64-bit platform.

//go:build !(386 || arm || mips || mipsle)

package httplimit_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strconv"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/httplimit"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// newLimiter stands for a limiter on your Redis.
func newLimiter() (*tiered.Limiter, func()) {
	server, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	// The embedded server is slow, and these examples are not about deadlines.
	limiter, err := tiered.Open(&redis.UniversalOptions{Addrs: []string{server.Addr()}}, tiered.Deadline(5*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	return limiter, func() { _ = limiter.Close(); server.Close() }
}

var search = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "found nothing") })

// call sends a request to a handler and prints what a client would see.
func call(h http.Handler, header ...string) {
	r := httptest.NewRequest(http.MethodGet, "/search", nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	fmt.Println(w.Code, w.Header().Get("RateLimit"))
}

// This limits each client's address.
func Example() {
	limiter, stop := newLimiter()
	defer stop()
	perClient, err := limiter.Rule("search", limit.PerMinute(2))
	if err != nil {
		log.Fatal(err)
	}
	limits, err := httplimit.New(limiter, httplimit.Limit(perClient, httplimit.ClientAddress))
	if err != nil {
		log.Fatal(err)
	}

	handler := limits(search)
	for range 3 {
		call(handler)
	}
	// Output:
	// 200 "search";r=1;t=60
	// 200 "search";r=0;t=60
	// 429 "search";r=0;t=60
}

// A tenant's quota and an endpoint's limit are charged together or not at all.
func ExampleLimit() {
	limiter, stop := newLimiter()
	defer stop()
	quota, err := limiter.Rule("tenant", limit.PerHour(1000))
	if err != nil {
		log.Fatal(err)
	}
	export, err := limiter.Rule("export", limit.PerMinute(1))
	if err != nil {
		log.Fatal(err)
	}
	tenant := httplimit.Header("X-Tenant") // the header of an authenticated request
	limits, err := httplimit.New(limiter,
		httplimit.Limit(quota, tenant, httplimit.Cost(func(*http.Request) int64 { return 50 })),
		httplimit.Limit(export, httplimit.Everyone),
	)
	if err != nil {
		log.Fatal(err)
	}

	call(limits(search), "X-Tenant", "a")
	call(limits(search), "X-Tenant", "a")
	d, err := quota.Peek(context.Background(), "a", 1)
	fmt.Println(d.Remaining, err) // the second request cost the tenant nothing
	// Output:
	// 200 "tenant";r=950;t=3600, "export";r=0;t=60
	// 429 "export";r=0;t=60
	// 950 <nil>
}

// Some keys have a limit of their own, such as a tenant's by its plan. With a rules file, pass the
// method For of its rule to RuleForKey.
func ExampleRuleForKey() {
	limiter, stop := newLimiter()
	defer stop()
	free, err := limiter.Rule("tenant", limit.PerHour(100))
	if err != nil {
		log.Fatal(err)
	}
	gold, err := free.WithLimit(limit.PerHour(1000))
	if err != nil {
		log.Fatal(err)
	}
	ruleOf := map[string]*tiered.Rule{"acme": gold}
	limits, err := httplimit.New(limiter, httplimit.Limit(free, httplimit.Header("X-Tenant"),
		httplimit.RuleForKey(func(tenant string) *tiered.Rule { return ruleOf[tenant] }))) // nil stands for free
	if err != nil {
		log.Fatal(err)
	}
	call(limits(search), "X-Tenant", "acme")
	call(limits(search), "X-Tenant", "initech")
	// Output:
	// 200 "tenant";r=999;t=3600
	// 200 "tenant";r=99;t=3600
}

// Behind reverse proxies, the client is the address that called the outermost trusted proxy, whatever
// the client claims.
func ExampleNewProxies() {
	proxies, err := httplimit.NewProxies("X-Forwarded-For", "10.0.0.0/8", "2001:db8:ff::/48")
	if err != nil {
		log.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = "10.0.0.1:4711"
	r.Header.Set("X-Forwarded-For", "127.0.0.1, 2001:db8:1:2:3:4:5:6, 10.0.0.2")
	fmt.Println(proxies.Client(r))
	fmt.Println(proxies.ClientAddress(r)) // the key: the /64 of an IPv6 address
	// Output:
	// 2001:db8:1:2:3:4:5:6
	// 2001:db8:1:2::/64
}

// A program that does not use net/http sends its clients the same fields and problem document.
func ExampleFields() {
	limiter, stop := newLimiter()
	defer stop()
	search, err := limiter.Rule("search", limit.PerMinute(1))
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		d, err := search.Allow(context.Background(), "ann")
		if err != nil {
			log.Fatal(err)
		}
		decided := httplimit.Decided{Rule: search, Decision: d}
		for name, value := range httplimit.Fields(httplimit.DraftHeaders, decided) {
			fmt.Printf("%s: %s\n", name, value)
		}
		if denial, denied := httplimit.Denied(decided); denied {
			fmt.Printf("%d %s", denial.Status, denial.Problem())
		}
	}
	// Output:
	// Ratelimit-Policy: "search";q=1;w=60
	// Ratelimit: "search";r=0;t=60
	// Ratelimit-Policy: "search";q=1;w=60
	// Ratelimit: "search";r=0;t=60
	// Retry-After: 60
	// Cache-Control: no-store
	// 429 {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":429,"violated-policies":["search"]}
}

// Users who are logged in have their name as the key, all other clients their address.
func ExampleFirstOf() {
	type userKey struct{}
	user := httplimit.Principal(func(ctx context.Context) string {
		name, _ := ctx.Value(userKey{}).(string)
		return name
	})
	key := httplimit.FirstOf(user, httplimit.ClientAddress)

	r := httptest.NewRequest(http.MethodGet, "/", nil)
	fmt.Println(key(r))
	fmt.Println(key(r.WithContext(context.WithValue(r.Context(), userKey{}, "ann"))))
	// Output:
	// 1:192.0.2.1
	// 0:ann
}

// A metered API reserves 10 units, and charges the units that the response states.
func ExampleSettle() {
	limiter, stop := newLimiter()
	defer stop()
	metered, err := limiter.Rule("metered", limit.PerHour(100))
	if err != nil {
		log.Fatal(err)
	}
	limits, err := httplimit.New(limiter, httplimit.Limit(metered, httplimit.Everyone,
		httplimit.Cost(func(*http.Request) int64 { return 10 }),
		httplimit.Settle(func(_ *http.Request, response httplimit.Response) int64 {
			units, _ := strconv.ParseInt(response.Header.Get("Units"), 10, 64)
			return units
		}),
	))
	if err != nil {
		log.Fatal(err)
	}
	call(limits(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Units", "3") })))
	d, err := metered.Peek(context.Background(), "all", 1)
	fmt.Println(d.Remaining, err)
	// Output:
	// 200 "metered";r=90;t=3600
	// 97 <nil>
}

// All processes of a fleet share the quota of another company's service.
func ExampleNewTransport() {
	limiter, stop := newLimiter()
	defer stop()
	quota, err := limiter.Rule("weather-api", limit.PerDay(10))
	if err != nil {
		log.Fatal(err)
	}
	transport, err := httplimit.NewTransport(nil, quota,
		httplimit.TransportCost(func(r *http.Request) int64 { return 6 }),
		httplimit.MaxWait(time.Second),
	)
	if err != nil {
		log.Fatal(err)
	}
	client := &http.Client{Transport: transport}

	service := httptest.NewServer(search)
	defer service.Close()
	for range 2 {
		response, err := client.Get(service.URL)
		if err == nil {
			_ = response.Body.Close()
		}
		var notSent *httplimit.NotSentError
		if errors.As(err, &notSent) {
			fmt.Println(notSent.Reason, notSent.RetryAfter.Round(time.Hour))
		} else {
			fmt.Println(err)
		}
	}
	// Output:
	// <nil>
	// httplimit: the upstream's quota is used up 24h0m0s
}
