package httplimit

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// Programs without net/http send their clients the same fields as the middleware, byte for byte.
func TestFieldsAreThoseOfTheMiddleware(t *testing.T) {
	var now atomic.Int64
	now.Store(1_800_000_000_000_000)
	client, server := redistest.Embedded(t)
	server.SetTime(time.UnixMicro(now.Load()))
	l := newLimiterOn(t, client, tiered.VirtualClock(func() time.Time { return time.UnixMicro(now.Load()) }))
	bytes := newRule(t, l, "bytes", limit.PerMinute(100))
	tenant := newRule(t, l, "tenant", limit.PerHour(40))
	for name, style := range map[string]HeaderStyle{"draft": DraftHeaders, "x": XHeaders, "none": NoHeaders} {
		t.Run(name, func(t *testing.T) {
			cost := func(*http.Request) int64 { return 15 }
			h := newMiddleware(t, l, Headers(style),
				Limit(bytes, keyed("http "+name), Unit("content-bytes"), Cost(cost)),
				Limit(tenant, keyed("http "+name), PartitionKey(keyed("acme")), Cost(cost)))(done)
			for i := range 4 {
				w := get(h)
				ds, err := l.AllowAll(t.Context(),
					tiered.Request{Rule: bytes, Key: "other " + name, Cost: 15},
					tiered.Request{Rule: tenant, Key: "other " + name, Cost: 15})
				if err != nil {
					t.Fatal(err)
				}
				decided := []Decided{
					{Rule: bytes, Decision: ds[0], Unit: "content-bytes"},
					{Rule: tenant, Decision: ds[1], Partition: "acme"},
				}
				got := maps.Collect(Fields(style, decided...))
				denial, denied := Denied(decided...)
				if denied != (i >= 2) || denied && (denial.Status != w.Code || !slices.Equal(denial.Violated, []string{"tenant"})) {
					t.Errorf("request %d: denied %v, %+v; the middleware answered %d", i, denied, denial, w.Code)
				}
				if denied && string(denial.Problem()) != w.Body.String() {
					t.Errorf("request %d: %s instead of %s", i, denial.Problem(), w.Body)
				}
				want := make(map[string]string)
				for name := range w.Header() {
					if name != "Content-Type" && name != "Content-Length" && name != fieldXReset { // X-Reset goes by wall clock
						want[name] = w.Header().Get(name)
					}
				}
				if delete(got, fieldXReset); !maps.Equal(got, want) {
					t.Errorf("request %d: %q, the middleware set %q", i, got, want)
				}
				if n := len(want); n == 0 && (style != NoHeaders || denied) || denied && want[fieldRetryAfter] != "3600" {
					t.Errorf("request %d: %q", i, want)
				}
			}
		})
	}
}

// Retry-After is the wait of the limits that deny. A rule on a dry run does not deny, whatever its
// decision says.
func TestRetryAfterIsOfTheLimitsInTheWay(t *testing.T) {
	got := maps.Collect(Fields(NoHeaders,
		Decided{Decision: limit.Decision{Allowed: true, DryRun: true, WouldDeny: true, RetryAfter: time.Hour}},
		Decided{Decision: limit.Decision{RetryAfter: 1500 * time.Millisecond}},
		Decided{Decision: limit.Decision{RetryAfter: time.Second}}))
	if got[fieldRetryAfter] != "2" {
		t.Errorf("%q", got)
	}
}

func TestDeniedWithoutRedis(t *testing.T) {
	server := redistest.Start(t)
	l := newLimiterOn(t, server.Client(t))
	login := newRule(t, l, "login", limit.PerHour(10), tiered.OnOutage(tiered.Deny))
	server.Kill()
	for until := time.Now().Add(10 * time.Second); !l.Degraded(); {
		if _, _ = login.Allow(t.Context(), "someone else"); time.Now().After(until) {
			t.Fatal("the breaker stays closed without Redis")
		}
	}
	d, err := login.Allow(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	denial, denied := Denied(Decided{Rule: login, Decision: d})
	if !denied || denial.Status != http.StatusServiceUnavailable {
		t.Errorf("%v, %+v", denied, denial)
	}

	upstream := &upstreamStub{status: http.StatusOK}
	for _, wait := range []time.Duration{0, 500 * time.Millisecond} {
		transport, err := NewTransport(upstream, login, MaxWait(wait))
		if err != nil {
			t.Fatal(err)
		}
		_, err = transport.RoundTrip(httptest.NewRequest(http.MethodGet, "http://upstream.example", nil))
		var notSent *NotSentError
		if !errors.Is(err, ErrUncounted) || !errors.As(err, &notSent) || notSent.RetryAfter <= 0 || upstream.calls > 0 {
			t.Errorf("a request that may wait %v: %v, sent %d", wait, err, upstream.calls)
		}
	}
	var problem struct {
		Type     string
		Status   int
		Violated []string `json:"violated-policies"`
	}
	if err := json.Unmarshal(denial.Problem(), &problem); err != nil || problem.Type != typeReducedCapacity || problem.Status != 503 || !slices.Equal(problem.Violated, []string{"login"}) {
		t.Errorf("%v, %+v", err, problem)
	}
}

// A denial has the decisions of all limits. It names the limits that deny, also in its problem
// document.
func TestADenialBySeveralLimits(t *testing.T) {
	l := newLimiter(t)
	decisions := []limit.Decision{{RetryAfter: time.Second}, {HeldBack: true, Remaining: 5}, {RetryAfter: time.Minute}}
	denial, denied := Denied(
		Decided{Rule: newRule(t, l, "minute", limit.PerMinute(5)), Decision: decisions[0]},
		Decided{Rule: newRule(t, l, "hour", limit.PerHour(50)), Decision: decisions[1]},
		Decided{Rule: newRule(t, l, "day", limit.PerDay(500)), Decision: decisions[2]})
	if !denied || denial.Status != http.StatusTooManyRequests || !slices.Equal(denial.Decisions, decisions) {
		t.Errorf("%v, %+v", denied, denial)
	}
	var problem struct {
		Status   int
		Violated []string `json:"violated-policies"`
	}
	err := json.Unmarshal(denial.Problem(), &problem)
	if want := []string{"minute", "day"}; err != nil || problem.Status != 429 || !slices.Equal(problem.Violated, want) || !slices.Equal(denial.Violated, want) {
		t.Errorf("%v: %s", err, denial.Problem())
	}
}

// Decisions that a program makes up cause no panic, and do not inject other header fields.
func TestFieldsOfAnything(t *testing.T) {
	rule := newRule(t, newLimiter(t), "r", limit.PerMinute(5))
	if n := len(maps.Collect(Fields(DraftHeaders))); n != 0 {
		t.Errorf("%d fields of nothing", n)
	}
	for style := range NoHeaders + 2 {
		for _, d := range []Decided{{}, {Rule: rule}, {Decision: limit.Decision{Allowed: true}}, {Decision: limit.Decision{HeldBack: true}}, {Rule: rule, Decision: limit.Decision{HeldBack: true}}} {
			for name, value := range Fields(style, d) {
				if value == "" || name == fieldRetryAfter && value != "1" {
					t.Errorf("style %d, %+v: %s is %q", style, d, name, value)
				}
			}
			if _, denied := Denied(d); denied == d.Decision.Allowed {
				t.Errorf("%+v: denied %v", d, denied)
			}
		}
	}
	got := maps.Collect(Fields(DraftHeaders, Decided{Rule: rule, Decision: limit.Decision{Allowed: true}, Unit: "a\"\r\nX: y", Partition: "\"\r\n"}))
	if got[fieldPolicy] != `"r";q=5;w=60;pk=:Ig0K:` {
		t.Errorf("%q", got)
	}
	for range Fields(XHeaders, Decided{Rule: rule}) {
		break // a caller's loop may end early
	}
}

// A program may replace the rules' names by names for its clients. The problem document is valid JSON whatever
// characters they have.
func TestProblemWithOtherNames(t *testing.T) {
	names := []string{`Search "beta"`, "line\nbreak", `back\slash`, "Straße", ""}
	var problem struct {
		Violated []string `json:"violated-policies"`
	}
	text := Denial{Status: 429, Violated: names}.Problem()
	if err := json.Unmarshal(text, &problem); err != nil || !slices.Equal(problem.Violated, names) {
		t.Errorf("%v: %s", err, text)
	}
	if text := (Denial{Status: 503}).Problem(); !strings.Contains(string(text), `"violated-policies":[]`) {
		t.Errorf("without names: %s", text)
	}
}
