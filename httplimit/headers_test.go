package httplimit

import (
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"pgregory.net/rapid"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// failer is the part of testing.T and rapid.T that helpers use.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// parsed returns a field as read by an independent parser of RFC 9651: the parameters of each item, by
// the item's name.
func parsed(t failer, h http.Header, field string) map[string]map[string]any {
	t.Helper()
	list, err := httpsfv.UnmarshalList(h.Values(field))
	if err != nil {
		t.Fatalf("%s: %q is no structured field: %v", field, h.Values(field), err)
	}
	items := make(map[string]map[string]any)
	for _, member := range list {
		item, ok := member.(httpsfv.Item)
		name, isString := item.Value.(string)
		if !ok || !isString {
			t.Fatalf("%s: %q has a member that is no string", field, h.Values(field))
		}
		items[name] = make(map[string]any)
		for _, parameter := range item.Params.Names() {
			items[name][parameter], _ = item.Params.Get(parameter)
		}
	}
	return items
}

func TestDraftHeaders(t *testing.T) {
	l := newLimiter(t)
	h := newMiddleware(t, l,
		Limit(newRule(t, l, "burst", limit.Per(2, 1500*time.Millisecond)), ClientAddress),
		Limit(newRule(t, l, "tenant/daily.v1", limit.PerDay(500)), ClientAddress,
			Unit("content-bytes"), Cost(func(*http.Request) int64 { return 100 }),
			PartitionKey(func(*http.Request) string { return "\x00key\xff" })),
	)(done)
	w := get(h)
	want := map[string]map[string]any{
		"burst":           {"q": int64(2)}, // w cannot express 1.5 s
		"tenant/daily.v1": {"q": int64(500), "w": int64(86400), "qu": "content-bytes", "pk": []byte("\x00key\xff")},
	}
	if got := parsed(t, w.Header(), "RateLimit-Policy"); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("RateLimit-Policy is %v, want %v", got, want)
	}
	want = map[string]map[string]any{
		"burst":           {"r": int64(1), "t": int64(2)},
		"tenant/daily.v1": {"r": int64(400), "t": int64(86400), "pk": []byte("\x00key\xff")},
	}
	if got := parsed(t, w.Header(), "RateLimit"); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("RateLimit is %v, want %v", got, want)
	}
}

// A middleware inside another adds to the fields that are lists, and replaces only the others.
func TestNestedMiddlewaresBothTell(t *testing.T) {
	l := newLimiter(t)
	inner := newMiddleware(t, l, Limit(newRule(t, l, "inner", limit.PerHour(10)), ClientAddress))(done)
	outer := newMiddleware(t, l, Limit(newRule(t, l, "outer", limit.PerHour(20)), ClientAddress))(inner)
	w := get(outer)
	for _, field := range []string{"RateLimit", "RateLimit-Policy"} {
		if got := parsed(t, w.Header(), field); got["inner"] == nil || got["outer"] == nil {
			t.Errorf("%s is %v", field, got)
		}
	}
	// Fields that are not lists are replaced.
	inner = newMiddleware(t, l, Headers(XHeaders), Limit(newRule(t, l, "one", limit.PerHour(1)), ClientAddress))(done)
	outer = newMiddleware(t, l, Headers(XHeaders), Limit(newRule(t, l, "more", limit.PerHour(20)), ClientAddress))(inner)
	get(outer)
	for name, values := range get(outer).Header() {
		if len(values) != 1 {
			t.Errorf("%s: %q", name, values)
		}
	}
}

// For any limits, the fields have the draft's syntax, and Retry-After is not earlier than the end of
// any effective window.
func TestHeadersParseForAnyLimits(t *testing.T) {
	l := newLimiter(t)
	n := atomic.Int64{}
	rapid.Check(t, func(t *rapid.T) {
		options := []Option{}
		windows := map[string]time.Duration{}
		for range rapid.IntRange(1, 4).Draw(t, "limits") {
			name := rapid.StringMatching(`[a-zA-Z0-9_./-]{1,40}`).Draw(t, "name") + strconv.FormatInt(n.Add(1), 10)
			window := time.Duration(rapid.Int64Range(1, 400_000_000).Draw(t, "ms")) * time.Millisecond
			lim := limit.Per(rapid.SampledFrom([]int64{1, 2, 1000, 1_000_000, limit.MaxQuota}).Draw(t, "quota"), window)
			rule, err := l.Rule(name, lim)
			if err != nil {
				t.Fatal(err)
			}
			windows[name] = window
			limitOptions := []LimitOption{}
			if rapid.Bool().Draw(t, "pk") {
				key := rapid.SliceOfN(rapid.Byte(), 1, 300).Draw(t, "partition")
				limitOptions = append(limitOptions, PartitionKey(func(*http.Request) string { return string(key) }))
			}
			options = append(options, Limit(rule, Everyone, limitOptions...))
		}
		limits, err := New(l, options...)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			w := get(limits(done))
			for name, p := range parsed(t, w.Header(), "RateLimit-Policy") {
				q, _ := p["q"].(int64)
				seconds, whole := p["w"].(int64)
				if q < 1 || whole != (windows[name]%time.Second == 0) || whole && time.Duration(seconds)*time.Second != windows[name] {
					t.Fatalf("%s has policy %v for a window of %v", name, p, windows[name])
				}
			}
			retryAfter, _ := strconv.ParseInt(w.Header().Get("Retry-After"), 10, 64)
			left := parsed(t, w.Header(), "RateLimit")
			for name, p := range left {
				r, ok := p["r"].(int64)
				until, ok2 := p["t"].(int64)
				if !ok || !ok2 || r < 0 || until < 1 || w.Code == 429 && until > retryAfter {
					t.Fatalf("status %d: %s has %v left, Retry-After %d", w.Code, name, p, retryAfter)
				}
			}
			if len(left) == 0 || w.Code == 429 && retryAfter < 1 {
				t.Fatalf("status %d with %v", w.Code, w.Header())
			}
		}
	})
}

// Waits are rounded up by less than a second: a client that comes back when it was told is let in, and
// a second earlier it would not have been.
func TestRetryAfterIsNeverEarly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(1, int64(limit.MaxWindow)).Draw(t, "wait"))
		if s := time.Duration(seconds(d)) * time.Second; s < d || s-d >= time.Second {
			t.Fatalf("%v is told as %v", d, s)
		}
	})
	var now atomic.Int64
	now.Store(1_800_000_000_123_456)
	client, server := redistest.Embedded(t)
	server.SetTime(time.UnixMicro(now.Load()))
	l := newLimiterOn(t, client, tiered.VirtualClock(func() time.Time { return time.UnixMicro(now.Load()) }))
	h := newMiddleware(t, l, Limit(newRule(t, l, "api", limit.Per(3, 10*time.Second)), Everyone))(done)
	for range 200 {
		w := get(h)
		if w.Code == 429 {
			wait, err := strconv.ParseInt(w.Header().Get("Retry-After"), 10, 64)
			if err != nil || wait < 1 {
				t.Fatalf("Retry-After %q", w.Header().Get("Retry-After"))
			}
			now.Add((wait - 1) * 1e6)
			if get(h).Code != 429 {
				t.Fatalf("let in %d s after a denial that said %d", wait-1, wait)
			}
			now.Add(1e6)
			if w = get(h); w.Code != 200 {
				t.Fatalf("denied after the %d s that were told", wait)
			}
		}
		now.Add(700_001)
	}
}

func TestXHeaders(t *testing.T) {
	l := newLimiter(t)
	h := newMiddleware(t, l, Headers(XHeaders),
		Limit(newRule(t, l, "daily", limit.PerDay(100)), ClientAddress),
		Limit(newRule(t, l, "hourly", limit.PerHour(2)), ClientAddress),
	)(done)
	for i, want := range []string{"1", "0", "0"} {
		before := time.Now()
		w := get(h)
		if w.Header().Get("X-RateLimit-Limit") != "2" || w.Header().Get("X-RateLimit-Remaining") != want || w.Header().Get("RateLimit") != "" {
			t.Errorf("request %d: %v", i, w.Header())
		}
		reset, err := strconv.ParseInt(w.Header().Get("X-RateLimit-Reset"), 10, 64)
		if at := time.Unix(reset, 0); err != nil || at.Before(before.Add(time.Hour-time.Minute)) || at.After(time.Now().Add(time.Hour+time.Second)) {
			t.Errorf("request %d: reset %q", i, w.Header().Get("X-RateLimit-Reset"))
		}
	}
}

func TestNoHeaders(t *testing.T) {
	l := newLimiter(t)
	h := newMiddleware(t, l, Headers(NoHeaders), Limit(newRule(t, l, "api", limit.PerHour(1)), ClientAddress))(done)
	get(h)
	w := get(h)
	if w.Code != 429 || w.Header().Get("Retry-After") == "" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
	for name := range w.Header() {
		if strings.Contains(strings.ToLower(name), "ratelimit") {
			t.Errorf("header has %s", name)
		}
	}
}

// Under GCRA, the debt of a first request is paid off in a moment. A client that used all remaining
// units in each such moment would be far above the limit, so the moment must not be sent as t.
func TestWhatRemainsIsNotToldForTooShortATime(t *testing.T) {
	l := newLimiter(t)
	rule := newRule(t, l, "api", limit.PerHour(3600).WithBurst(600), tiered.Use(limit.GCRA()))
	w := get(newMiddleware(t, l, Limit(rule, ClientAddress))(done))
	p := parsed(t, w.Header(), "RateLimit")["api"]
	if r, until := p["r"].(int64), p["t"].(int64); r != 599 || until != 599 {
		t.Errorf("%d in %d s, at 1 per second", r, until)
	}
}

// The X-RateLimit fields describe the limit that denies for the longest time. If none denies, they
// describe the limit with the smallest part left, in whatever order the limits are stated. The reset is
// rounded up.
func TestXHeadersAreOfTheLimitThatMattersMost(t *testing.T) {
	now := time.Unix(1_800_000_000, 1)
	for name, c := range map[string]struct {
		of   []limit.Decision
		want [3]string // limit, remaining, reset
	}{
		"allowed": {[]limit.Decision{
			{Allowed: true, Limit: 100, Remaining: 60, ResetAfter: time.Hour},
			{Allowed: true, Limit: 1000, Remaining: 500, ResetAfter: 10 * time.Second},
			{Allowed: true, Limit: 4, Remaining: 3, ResetAfter: time.Minute},
		}, [3]string{"1000", "500", "1800000011"}},
		"denied": {[]limit.Decision{
			{Limit: 7, Remaining: 1, RetryAfter: time.Second, ResetAfter: time.Hour},
			{Limit: 8, Remaining: 2, RetryAfter: 20*time.Second - 1, ResetAfter: time.Minute},
			{HeldBack: true, Limit: 9, Remaining: 0, ResetAfter: time.Hour},
		}, [3]string{"8", "2", "1800000020"}},
		"decided one by one": {[]limit.Decision{
			{Limit: 10, Remaining: 3, RetryAfter: 10*time.Second - 1},
			{Allowed: true, Limit: 20, Remaining: 0, ResetAfter: time.Hour},
		}, [3]string{"10", "3", "1800000010"}},
		"on a dry run": {[]limit.Decision{
			{Allowed: true, Limit: 5, Remaining: 4, ResetAfter: time.Second},
			{Allowed: true, DryRun: true, Limit: 6, Remaining: 0, ResetAfter: time.Hour},
		}, [3]string{"5", "4", "1800000002"}},
	} {
		for range c.of {
			c.of = append(c.of[1:], c.of[0])
			decided := make([]Decided, len(c.of))
			for i := range c.of {
				decided[i].Decision = c.of[i]
			}
			want := []field{{fieldXLimit, c.want[0]}, {fieldXRemaining, c.want[1]}, {fieldXReset, c.want[2]}}
			if got := appendX(nil, decided, now); !slices.Equal(got, want) {
				t.Errorf("%s: %v, want %v", name, got, want)
			}
		}
	}
}

// These are the items of RateLimit for single decisions. After a denial, t is the time until the
// decision would change. A concurrency limit has a t only after a denial, and has no w.
func TestDraftHeadersOfADecision(t *testing.T) {
	l := newLimiter(t)
	hourly, jobs := newRule(t, l, "api", limit.PerHour(60)), newRule(t, l, "jobs", limit.Concurrent(4))
	long := strings.Repeat("x", maxPartition)
	for name, c := range map[string]struct {
		of           Decided
		policy, left string
	}{
		"allowed": {
			Decided{Rule: hourly, Decision: limit.Decision{Allowed: true, Remaining: 59, ResetAfter: 59*time.Second + 1}},
			`"api";q=60;w=3600`, `"api";r=59;t=60`,
		},
		"denied": {
			Decided{Rule: hourly, Decision: limit.Decision{Remaining: 1, RetryAfter: 59*time.Second + 1, ResetAfter: time.Hour}},
			`"api";q=60;w=3600`, `"api";r=1;t=60`,
		},
		"in flight, allowed": {
			Decided{Rule: jobs, Decision: limit.Decision{Allowed: true, Remaining: 3, ResetAfter: time.Minute}},
			`"jobs";q=4;qu="concurrent-requests"`, `"jobs";r=3`,
		},
		"in flight, denied": {
			Decided{Rule: jobs, Decision: limit.Decision{RetryAfter: 50 * time.Millisecond}},
			`"jobs";q=4;qu="concurrent-requests"`, `"jobs";r=0;t=1`,
		},
		"in flight, of a unit of its own": {
			Decided{Rule: jobs, Unit: "workers", Decision: limit.Decision{Allowed: true, Remaining: 3}},
			`"jobs";q=4;qu="workers"`, `"jobs";r=3`,
		},
		"a long partition key": {
			Decided{Rule: hourly, Partition: long + "y", Decision: limit.Decision{Allowed: true, Remaining: 1, ResetAfter: time.Second}},
			`"api";q=60;w=3600;pk=:` + base64.StdEncoding.EncodeToString([]byte(long)) + ":",
			`"api";r=1;t=1;pk=:` + base64.StdEncoding.EncodeToString([]byte(long)) + ":",
		},
	} {
		got := maps.Collect(Fields(DraftHeaders, c.of))
		if got[fieldPolicy] != c.policy || got[fieldLimit] != c.left {
			t.Errorf("%s: %s and %s, want %s and %s", name, got[fieldPolicy], got[fieldLimit], c.policy, c.left)
		}
	}
}
