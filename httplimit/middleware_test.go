package httplimit

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

func TestDeniesAboveTheLimit(t *testing.T) {
	l := newLimiter(t)
	h := newMiddleware(t, l, Limit(newRule(t, l, "search", limit.PerHour(3)), ClientAddress))(done)
	if got := statuses(h, 5); !maps.Equal(got, map[int]int{200: 3, 429: 2}) {
		t.Errorf("5 requests: %v", got)
	}
	if got := statuses(h, 1, from("203.0.113.9:1")); got[200] != 1 {
		t.Errorf("another client: %v", got)
	}
}

func TestDenialIsAProblemDocument(t *testing.T) {
	l := newLimiter(t)
	h := newMiddleware(t, l,
		Limit(newRule(t, l, "daily", limit.PerDay(100)), ClientAddress),
		Limit(newRule(t, l, "search", limit.PerHour(1)), ClientAddress),
	)(done)
	get(h)
	w := get(h)
	var problem struct {
		Type     string   `json:"type"`
		Title    string   `json:"title"`
		Status   int      `json:"status"`
		Violated []string `json:"violated-policies"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &problem); err != nil {
		t.Fatalf("%v in %s", err, w.Body)
	}
	if problem.Type != "https://iana.org/assignments/http-problem-types#quota-exceeded" || problem.Status != 429 ||
		!slices.Equal(problem.Violated, []string{"search"}) || problem.Title == "" {
		t.Errorf("problem is %+v", problem)
	}
	h1 := w.Header()
	if h1.Get("Content-Type") != "application/problem+json" || h1.Get("Cache-Control") != "no-store" {
		t.Errorf("header is %v", h1)
	}
	if s, err := strconv.Atoi(h1.Get("Retry-After")); err != nil || s < 3590 || s > 3600 {
		t.Errorf("Retry-After is %q", h1.Get("Retry-After"))
	}
}

// Law 9: a request that one limit denies is charged to no limit.
func TestLaw9SeveralLimitsAreChargedTogetherOrNotAtAll(t *testing.T) {
	l := newLimiter(t)
	tenant, endpoint := newRule(t, l, "tenant", limit.PerHour(10)), newRule(t, l, "endpoint", limit.PerHour(4))
	third := newRule(t, l, "third", limit.PerHour(100))
	h := newMiddleware(t, l,
		Limit(tenant, Header("Tenant")),
		Limit(endpoint, Join(Header("Tenant"), Everyone)),
		Limit(third, Everyone),
	)(done)
	if got := statuses(h, 20, with("Tenant", "a")); got[200] != 4 {
		t.Errorf("statuses %v, want 4 of 200", got)
	}
	for rule, want := range map[*tiered.Rule]int64{tenant: 6, third: 96} {
		key := map[*tiered.Rule]string{tenant: "a", third: "all"}[rule]
		if d, err := rule.Peek(context.Background(), key, 1); err != nil || d.Remaining != want {
			t.Errorf("%s has %d left, want %d (%v)", rule.Name(), d.Remaining, want, err)
		}
	}
}

func TestWhenCostAndRuleFor(t *testing.T) {
	l := newLimiter(t)
	free := newRule(t, l, "api", limit.PerHour(10))
	gold, err := free.WithLimit(limit.PerHour(100))
	if err != nil {
		t.Fatal(err)
	}
	h := newMiddleware(t, l, Limit(free, Header("Tenant"),
		When(func(r *http.Request) bool { return r.Header.Get("Internal") == "" }),
		Cost(func(r *http.Request) int64 { return 5 }),
		RuleFor(func(r *http.Request) *tiered.Rule {
			if r.Header.Get("Tenant") == "gold" {
				return gold
			}
			return nil
		}),
	))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Reached", "1") }))
	if got := statuses(h, 30, with("Tenant", "free")); got[200] != 2 {
		t.Errorf("free: %v, want 2 of 200", got)
	}
	if got := statuses(h, 30, with("Tenant", "gold")); got[200] != 20 {
		t.Errorf("gold: %v, want 20 of 200", got)
	}
	if got := get(h, with("Tenant", "gold")).Header().Get("RateLimit-Policy"); got != `"api";q=100;w=3600` {
		t.Errorf("gold is told %s", got)
	}
	w := get(h, with("Tenant", "free"), with("Internal", "1"))
	if w.Code != 200 || w.Header().Get("RateLimit") != "" || w.Header().Get("Reached") == "" {
		t.Errorf("a request that the limit is not for: %d %v", w.Code, w.Header())
	}
}

// RuleForKey gets the key that the key function returned, and the key function is called once.
func TestRuleForKey(t *testing.T) {
	l := newLimiter(t)
	free := newRule(t, l, "api", limit.PerHour(10))
	gold, err := free.WithLimit(limit.PerHour(20))
	if err != nil {
		t.Fatal(err)
	}
	asked, told := 0, []string{}
	h := newMiddleware(t, l, Limit(free, func(r *http.Request) string { asked++; return r.Header.Get("Tenant") },
		RuleForKey(func(key string) *tiered.Rule {
			told = append(told, key)
			if key == "gold" {
				return gold
			}
			return nil
		})))(done)
	for _, c := range []struct {
		tenant string
		want   int
	}{{"free", 10}, {"gold", 20}, {"", 10}} {
		asked, told = 0, nil
		if got := statuses(h, 25, with("Tenant", c.tenant)); got[200] != c.want {
			t.Errorf("%q: %v, want %d of 200", c.tenant, got, c.want)
		}
		if asked != 25 || len(told) != 25 || told[0] != c.tenant {
			t.Errorf("%q: in 25 requests the key was asked for %d times, and told as %q", c.tenant, asked, told)
		}
	}
}

// Requests without a key have a quota of their own, which no key can share.
func TestNoKeyIsNoWayAroundALimit(t *testing.T) {
	l := newLimiter(t)
	h := newMiddleware(t, l, Limit(newRule(t, l, "api", limit.PerHour(3)), Header("Api-Key")))(done)
	if got := statuses(h, 5); got[200] != 3 {
		t.Errorf("without a key: %v, want 3 of 200", got)
	}
	for _, key := range []string{"\x00", "all", "0:", "x"} {
		if got := statuses(h, 1, with("Api-Key", key)); got[200] != 1 {
			t.Errorf("key %q shares the quota of requests without one", key)
		}
	}
}

func TestKeys(t *testing.T) {
	type user struct{}
	mux := http.NewServeMux()
	mux.Handle("GET /items/{id}", done)
	named := Principal(func(ctx context.Context) string { s, _ := ctx.Value(user{}).(string); return s })
	request := func(change ...func(*http.Request)) *http.Request {
		r, err := http.NewRequest(http.MethodGet, "http://shop.example/items/7", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.RemoteAddr = "192.0.2.7:80"
		for _, c := range change {
			c(r)
		}
		return r
	}
	signedIn := func(name string) func(*http.Request) {
		return func(r *http.Request) { *r = *r.WithContext(context.WithValue(r.Context(), user{}, name)) }
	}
	for name, c := range map[string]struct {
		key     KeyFunc
		request *http.Request
		want    string
	}{
		"address":               {ClientAddress, request(), "192.0.2.7"},
		"header":                {Header("x-api-key"), request(with("X-Api-Key", "k")), "k"},
		"host":                  {Header("host"), request(), "shop.example"},
		"principal":             {named, request(signedIn("ann")), "ann"},
		"nobody":                {named, request(), ""},
		"pattern":               {Pattern(mux), request(), "GET /items/{id}"},
		"pattern inside a mux":  {Pattern(nil), request(func(r *http.Request) { r.Pattern = "/a" }), "/a"},
		"join":                  {Join(named, Pattern(mux)), request(signedIn("ann")), "3:ann15:GET /items/{id}"},
		"first":                 {FirstOf(named, ClientAddress), request(signedIn("192.0.2.7")), "0:192.0.2.7"},
		"second":                {FirstOf(named, ClientAddress), request(), "1:192.0.2.7"},
		"none of several":       {FirstOf(named, Header("X")), request(), ""},
		"everyone":              {Everyone, request(), "all"},
		"address of a network":  {ClientAddress, request(from("[2001:db8::1]:80")), "2001:db8::/64"},
		"no address whatsoever": {ClientAddress, request(from("@")), ""},
	} {
		if got := c.key(c.request); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// Pattern returns the pattern of the mux. For a CONNECT request whose path lacks a slash at the end,
// ServeMux returns the redirected path instead of the pattern. A mux inside another has patterns of its
// own.
func TestPatternsAreTheMuxs(t *testing.T) {
	mux := http.NewServeMux()
	for _, pattern := range []string{"/users/{id}/", "/pages/{name}", "/pages/{name}/", "/files/", "/files/{$}", "GET /items/{id}", "/about", "/about/"} {
		mux.Handle(pattern, done)
	}
	outer := http.NewServeMux()
	var got string
	outer.Handle("/v1/", http.StripPrefix("/v1", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = Pattern(mux)(r) })))
	for _, c := range []struct{ method, path, want, behind string }{
		{"CONNECT", "/users/7", "/users/{id}/", "/users/{id}/"},
		{"CONNECT", "/users/%2e%2e", "/users/{id}/", ""}, // the outer mux redirects to another path
		{"CONNECT", "/users/7%2F", "/users/{id}/", ""},
		{"CONNECT", "/users/7/..%2F8%2f", "/users/{id}/", ""},
		{"CONNECT", "/users/7%2F%2F", "/users/{id}/", ""},
		{"CONNECT", "/users/7/", "/users/{id}/", "/users/{id}/"},
		{"CONNECT", "/files/7", "/files/", "/files/"},
		{"GET", "/users/7", "/users/{id}/", "/users/{id}/"},
		{"GET", "/users/7?x=1", "/users/{id}/", "/users/{id}/"},
		{"GET", "/files", "/files/{$}", "/files/{$}"},
		{"GET", "/pages/7", "/pages/{name}", "/pages/{name}"},
		{"GET", "/files/7", "/files/", "/files/"},
		{"GET", "/items/7", "GET /items/{id}", "GET /items/{id}"},
		{"GET", "/about", "/about", "/about"}, // the same path with a slash has another pattern
		{"GET", "/about/", "/about/", "/about/"},
		{"GET", "/unknown", "", "/v1/"},
	} {
		if got := Pattern(mux)(httptest.NewRequest(c.method, c.path, nil)); got != c.want {
			t.Errorf("%s %s: %q, want %q", c.method, c.path, got, c.want)
		}
		got = ""
		outer.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(c.method, "/v1"+c.path, nil))
		if c.behind != "" && got != c.behind {
			t.Errorf("%s %s in a mux inside another: %q, want %q", c.method, c.path, got, c.behind)
		}
	}
}

// Law 6: an error is never sent as a denial.
func TestLaw6AnErrorIsNever429(t *testing.T) {
	l := newLimiter(t)
	rule := newRule(t, l, "api", limit.PerHour(10))
	cost := int64(0)
	reached := 0
	handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached++ })
	limited := Limit(rule, ClientAddress, Cost(func(*http.Request) int64 { return cost }))
	var log strings.Builder
	h := newMiddleware(t, l, limited, Logger(slog.New(slog.NewTextHandler(&log, nil))))(handler)
	for _, cost = range []int64{0, -1, 11} {
		if w := get(h); w.Code != 500 || w.Header().Get("RateLimit") != "" || !json.Valid(w.Body.Bytes()) {
			t.Errorf("cost %d: status %d, %v, %s", cost, w.Code, w.Header(), w.Body)
		}
	}
	if lines := strings.Count(log.String(), "\n"); lines != 1 || !strings.Contains(log.String(), "cost") {
		t.Errorf("%d lines logged in a moment: %s", lines, log.String())
	}

	cost = 1
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	if w := get(h, func(r *http.Request) { *r = *r.WithContext(gone) }); w.Code != 503 {
		t.Errorf("cancelled: status %d", w.Code)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if w := get(h); w.Code != 503 || w.Header().Get("Retry-After") != "1" || w.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("closed: status %d, %v", w.Code, w.Header())
	}
	if reached != 0 {
		t.Errorf("%d requests reached the handler", reached)
	}

	var seen error
	open := newMiddleware(t, l, limited, OnError(func(_ http.ResponseWriter, _ *http.Request, err error) bool {
		seen = err
		return true
	}))(handler)
	if w := get(open); w.Code != 200 || reached != 1 || !errors.Is(seen, limit.ErrClosed) {
		t.Errorf("OnError let through: status %d, reached %d, error %v", w.Code, reached, seen)
	}
}

// Law 6: load is not an error. If the limiter has no room for a request, the rule's policy decides, as
// for any request that Redis does not answer in time, whether or not Redis is there. Only a rule whose
// policy is Deny answers 503.
func TestLaw6NoErrorForLoad(t *testing.T) {
	const requests = 500
	server := redistest.Start(t)
	l := newLimiterOn(t, server.Client(t), tiered.QueueLength(1), tiered.Deadline(500*time.Millisecond))
	send := func(policy tiered.OutagePolicy) map[int]int {
		t.Helper()
		h := newMiddleware(t, l, Limit(newRule(t, l, policy.String(), limit.PerHour(1_000_000), tiered.OnOutage(policy)), Header("User")))(done)
		statuses := make(chan int, requests)
		for i := range requests {
			go func() { statuses <- get(h, with("User", fmt.Sprint(i))).Code }()
		}
		counts := make(map[int]int)
		for range requests {
			counts[<-statuses]++
		}
		return counts
	}
	for _, paused := range []bool{false, true} {
		if paused {
			server.Pause()
			defer server.Resume()
		}
		for _, policy := range []tiered.OutagePolicy{tiered.Approximate, tiered.Allow, tiered.Deny} {
			want := map[int]int{200: requests}
			got := send(policy)
			switch {
			case policy == tiered.Deny && paused:
				want = map[int]int{503: requests}
			case policy == tiered.Deny: // the limiter had no room for some, or on a busy machine for all
				want = map[int]int{503: got[503], 200: requests - got[503]}
				maps.DeleteFunc(want, func(_, n int) bool { return n == 0 })
			}
			if !maps.Equal(got, want) {
				t.Errorf("%v, paused %v: %v, want %v", policy, paused, got, want)
			}
		}
	}
	if n := decidedBy(l, limit.TierOverload); n < requests/2 {
		t.Errorf("the test shows little: %d requests found no room", n)
	}
}

// decidedBy returns the number of decisions that a tier has made for all rules.
func decidedBy(l *tiered.Limiter, tier limit.Tier) (n uint64) {
	for _, r := range l.Stats().Rules {
		n += r.Decisions[tier].Allowed + r.Decisions[tier].Denied
	}
	return n
}

// Law 11: in an outage, the rules' policies decide. A client that is denied because the rule lets
// nobody in gets 503. A client that has used up the instance's share gets 429.
func TestOutagePolicies(t *testing.T) {
	server := redistest.Start(t)
	newLimiterOn(t, server.Client(t)) // another instance
	l := newLimiterOn(t, server.Client(t))
	if n := l.FleetSize(); n != 2 {
		t.Fatalf("a fleet of %d, want 2", n)
	}
	server.Kill()
	for until := time.Now().Add(10 * time.Second); !l.Degraded(); { // failed trips open the breaker
		_, _ = newRule(t, l, "other", limit.PerHour(10)).Allow(t.Context(), "anyone")
		if time.Now().After(until) {
			t.Fatal("the breaker stays closed without Redis")
		}
	}
	deny := newRule(t, l, "login", limit.PerHour(10), tiered.OnOutage(tiered.Deny))
	share := newRule(t, l, "search", limit.PerHour(10))
	allow := newRule(t, l, "feed", limit.PerHour(10), tiered.OnOutage(tiered.Allow))

	w := get(newMiddleware(t, l, Limit(deny, ClientAddress), Limit(allow, ClientAddress))(done))
	if w.Code != 503 || w.Header().Get("Retry-After") != "1" ||
		!strings.Contains(w.Body.String(), `#temporary-reduced-capacity"`) || !strings.Contains(w.Body.String(), `["login"]`) {
		t.Errorf("Deny: %d %v %s", w.Code, w.Header(), w.Body)
	}
	if got := statuses(newMiddleware(t, l, Limit(share, ClientAddress))(done), 8); got[200] != 5 || got[429] != 3 {
		t.Errorf("Approximate, 10 per hour shared by 2: %v, want 5 of 200, 3 of 429", got)
	}
	if got := statuses(newMiddleware(t, l, Limit(allow, ClientAddress))(done), 12); got[200] != 12 {
		t.Errorf("Allow: %v, want 12 of 200", got)
	}
}

func TestOnDenied(t *testing.T) {
	l := newLimiter(t)
	h := newMiddleware(t, l,
		Limit(newRule(t, l, "a", limit.PerHour(1)), ClientAddress),
		Limit(newRule(t, l, "b", limit.PerHour(9)), ClientAddress),
		OnDenied(func(w http.ResponseWriter, _ *http.Request, d Denial) {
			w.WriteHeader(http.StatusTeapot)
			_, _ = fmt.Fprintf(w, "%d %v %d", d.Status, d.Violated, len(d.Decisions))
		}))(done)
	get(h)
	if w := get(h); w.Code != http.StatusTeapot || w.Body.String() != "429 [a] 2" || w.Header().Get("Retry-After") == "" {
		t.Errorf("%d %q %v", w.Code, w.Body, w.Header())
	}
}

func TestOptionsAreChecked(t *testing.T) {
	l := newLimiter(t)
	rule := newRule(t, l, "api", limit.PerHour(10))
	ok := Limit(rule, Everyone)
	for name, options := range map[string][]Option{
		"no limit":       {},
		"nil rule":       {Limit(nil, Everyone)},
		"nil key":        {Limit(rule, nil)},
		"rule twice":     {ok, ok},
		"nil When":       {Limit(rule, Everyone, When(nil))},
		"nil Cost":       {Limit(rule, Everyone, Cost(nil))},
		"nil RuleFor":    {Limit(rule, Everyone, RuleFor(nil))},
		"nil RuleForKey": {Limit(rule, Everyone, RuleForKey(nil))},
		"two rules":      {Limit(rule, Everyone, RuleFor(func(*http.Request) *tiered.Rule { return rule }), RuleForKey(func(string) *tiered.Rule { return rule }))},
		"nil Settle":     {Limit(rule, Everyone, Settle(nil))},
		"two settle":     {Limit(rule, Everyone, Settle(func(*http.Request, Response) int64 { return 1 }), HandlerCost())},
		"nothing to":     {Limit(newRule(t, l, "slots", limit.Concurrent(10)), Everyone, HandlerCost())},
		"rules by key":   {Limit(rule, Everyone, RuleForKey(func(string) *tiered.Rule { return rule }), RuleFor(func(*http.Request) *tiered.Rule { return rule }))},
		"nil partition":  {Limit(rule, Everyone, PartitionKey(nil))},
		"unit":           {Limit(rule, Everyone, Unit(`a"b`))},
		"style":          {ok, Headers(NoHeaders + 1)},
		"nil OnDenied":   {ok, OnDenied(nil)},
		"nil OnError":    {ok, OnError(nil)},
		"nil Logger":     {ok, Logger(nil)},
		"unit is empty":  {Limit(rule, Everyone, Unit(""))},
		"unit has space": {Limit(rule, Everyone, Unit("a b"))},
	} {
		if name != "no limit" { // in addition to a valid limit
			options = append(options, Limit(newRule(t, l, "other", limit.PerHour(10)), Everyone))
		}
		if _, err := New(l, options...); !errors.Is(err, limit.ErrInvalidOption) {
			t.Errorf("%s: error %v, want ErrInvalidOption", name, err)
		}
	}
	for want, option := range map[string]Option{
		`the rule of limit "api" belongs to another limiter`:                              Limit(newRule(t, newLimiter(t), "api", limit.PerHour(10)), Everyone),
		`the key of limit "api", or a part of that key, is nil: functions that make keys`: Limit(rule, FirstOf(Everyone, Join(ClientAddress, Principal(nil)))),
		"the rule of limit 1 is nil":                                                      Limit(nil, Everyone),
	} {
		if _, err := New(l, option); !errors.Is(err, limit.ErrInvalidOption) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v", want, err)
		}
	}
	for name, key := range map[string]KeyFunc{"Join": Join(), "FirstOf": FirstOf()} {
		if _, err := New(l, Limit(rule, key)); !errors.Is(err, limit.ErrInvalidOption) {
			t.Errorf("%s without arguments: error %v", name, err)
		}
	}
	for _, name := range []string{"", " ", "X Client", "ü"} { // all requests would have the same, empty key
		for _, key := range []KeyFunc{Header(name), FirstOf(Header(name), Everyone)} {
			if _, err := New(l, Limit(rule, key)); !errors.Is(err, limit.ErrInvalidOption) {
				t.Errorf("Header %q: error %v", name, err)
			}
		}
	}
	if _, err := New(nil, ok); !errors.Is(err, limit.ErrInvalidOption) {
		t.Errorf("nil limiter: error %v", err)
	}
}

// A Redis that has lost its data and is back decides together with this instance's share for up to a
// window. A rule that denies in an outage lets requests in again by then, so a denial means that the key
// has used up its part: it is not answered like an outage, for which load balancers would remove the
// instance.
func TestDenialsAfterAnOutageAreNoOutage(t *testing.T) {
	server := redistest.Start(t)
	l := newLimiterOn(t, server.Client(t))
	login := newRule(t, l, "login", limit.PerHour(3), tiered.OnOutage(tiered.Deny))
	inFlight := newRule(t, l, "in-flight", limit.Concurrent(1), tiered.OnOutage(tiered.Deny), tiered.SlotTTL(time.Minute))
	h := newMiddleware(t, l, Limit(login, Everyone))(done)
	if got := statuses(h, 1)[http.StatusOK]; got != 1 {
		t.Fatal("the first request was not let in")
	}
	server.Restart()
	redistest.Eventually(t, "the limiter settles", func() bool { return l.State() == tiered.Settling })
	redistest.Eventually(t, "a request is let in", func() bool { return get(h).Code == http.StatusOK })
	if got := statuses(h, 3); got[http.StatusTooManyRequests] == 0 || got[http.StatusServiceUnavailable] != 0 {
		t.Errorf("while the limiter settles: %v", got)
	}
	var second int
	get(newMiddleware(t, l, Limit(inFlight, Everyone))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		second = get(newMiddleware(t, l, Limit(inFlight, Everyone))(done)).Code
	})))
	if second != http.StatusTooManyRequests {
		t.Errorf("a second request in flight while the limiter settles: %d", second)
	}
	if l.State() != tiered.Settling {
		t.Fatal("the limiter no longer settles")
	}
	server.Kill()
	redistest.Eventually(t, "the limiter is in an outage", func() bool { return l.State() == tiered.Outage })
	for name, limits := range map[string][]Option{
		"a rate":            {Limit(login, Everyone)},
		"what is in flight": {Limit(inFlight, Everyone)},
		"both":              {Limit(login, Everyone), Limit(inFlight, Everyone)},
	} {
		if got := get(newMiddleware(t, l, limits...)(done)).Code; got != http.StatusServiceUnavailable {
			t.Errorf("in an outage, a limit on %s: %d", name, got)
		}
	}
}

// An outer middleware may compress what a middleware answers, as it does with the answers of handlers.
func TestDenialsCanBeCompressed(t *testing.T) {
	l := newLimiter(t)
	limited := newMiddleware(t, l, Limit(newRule(t, l, strings.Repeat("api", 20), limit.PerHour(1)), Everyone))(done)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		body := gzip.NewWriter(w)
		defer body.Close()
		limited.ServeHTTP(compressed{w, body}, r)
	}))
	defer server.Close()
	for _, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
		response, err := http.Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if response.StatusCode != want || err != nil || (want != http.StatusOK) != strings.Contains(string(body), `"Quota Exceeded"`) {
			t.Errorf("status %d, want %d; error %v, body %q", response.StatusCode, want, err, body)
		}
	}
}

type compressed struct {
	http.ResponseWriter
	body io.Writer
}

func (c compressed) Write(p []byte) (int, error) { return c.body.Write(p) }
