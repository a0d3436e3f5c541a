package demo

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/tierlimit/tierlimit/cmd/tierlimit/internal/trace"
	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// steady returns a trace of one hour with ten requests a second, by two keys.
func steady() *trace.Trace {
	var events []trace.Event
	for i := range int64(36_000) {
		events = append(events, trace.Event{At: i * 100_000, Key: fmt.Sprint("key", i%2), Cost: 1})
	}
	return trace.Of(events...)
}

// played starts a demo of 1,000 requests a second, with seconds that last a tenth of a second.
func played(t *testing.T, l limit.Limit, hosts ...string) *Demo {
	t.Helper()
	options, err := redis.ParseURL(redistest.Shared(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	options.DialerRetries = 1
	d, err := start(Config{Trace: steady(), Limit: l, Speed: 100, Redis: options, Hosts: hosts}, pace{second: 100 * time.Millisecond, deadline: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// until waits until a condition holds for the values that the demo shows.
func until(t *testing.T, d *Demo, what string, holds func(shown) bool) {
	t.Helper()
	var s shown
	defer func() {
		if t.Failed() {
			t.Logf("it shows %+v", s)
		}
	}()
	redistest.Eventually(t, what, func() bool { s = d.shown(); return holds(s) })
}

// decidedBy waits until each instance decides by its wanted tier, and by no other.
func decidedBy(t *testing.T, d *Demo, wanted ...limit.Tier) {
	t.Helper()
	until(t, d, fmt.Sprintf("tiers are %v", wanted), func(s shown) bool {
		for i, m := range s.Members {
			if len(m.Tiers) == 0 {
				return false // nothing yet
			}
			for _, tier := range m.Tiers {
				if (tier.Allowed > 0) != (tier.Tier == wanted[i]) {
					return false
				}
			}
		}
		return true
	})
}

const (
	redisTier = limit.TierRedis
	fallback  = limit.TierFallback
)

// The page's buttons cut and restore one instance, all, and none.
func TestCutAndRestore(t *testing.T) {
	d := played(t, limit.PerSecond(100_000))
	server := httptest.NewServer(d.Handler("a test", "a Redis"))
	defer server.Close()
	press := func(form ...string) {
		t.Helper()
		values := url.Values{}
		for i := 0; i < len(form); i += 2 {
			values.Set(form[i], form[i+1])
		}
		response, err := http.PostForm(server.URL+"/", values) // follows the redirect to the page
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Fatal(form, response.Status)
		}
	}
	decidedBy(t, d, redisTier, redisTier, redisTier, redisTier)
	press("cut", "2")
	decidedBy(t, d, redisTier, fallback, redisTier, redisTier)
	if s := d.shown(); s.Healthy != 3 || len(s.Cut) != 1 || s.Cut[0] != 2 {
		t.Errorf("%+v", s)
	}
	press("cut", "all")
	decidedBy(t, d, fallback, fallback, fallback, fallback)
	press("restore", "2")
	decidedBy(t, d, fallback, redisTier, fallback, fallback)
	press("restore", "all")
	decidedBy(t, d, redisTier, redisTier, redisTier, redisTier)
	if s := d.shown(); s.Failed > 0 || s.LeftOut > 0 || s.Healthy != 4 || s.Cut != nil {
		t.Errorf("%+v", s)
	}
}

// If a demo ends just after an instance was cut off, that instance cannot leave the fleet. The demo
// still ends without an error, and leaves nothing in Redis.
func TestEndsWhileAnInstanceIsCutOff(t *testing.T) {
	var d *Demo
	t.Cleanup(func() { // runs after the demo has ended
		client := redistest.Shared(t).Client(t)
		if left := client.Keys(context.Background(), d.prefix+"*").Val(); len(left) > 0 {
			t.Errorf("%q are left", left)
		}
	})
	d = played(t, limit.PerSecond(100_000))
	until(t, d, "all are healthy", func(s shown) bool { return s.Healthy == Instances })
	d.fleet[0].wire.set(true)
}

// While Redis decides, the limit holds, by an exact count over all instances. About as many requests
// pass as with an exact log. The exact log gets denials a little later than Redis, when some of the
// units that caused them may have left.
func TestLimitHolds(t *testing.T) {
	d := played(t, limit.Per(20, 200*time.Millisecond)) // 100 requests of each key are sent
	until(t, d, "some seconds are judged", func(s shown) bool { return s.Allowed > 150 })
	s := d.shown()
	if s.Worst != 20 || s.Minute != 20 || max(s.Allowed-s.Exact, s.Exact-s.Allowed) > s.Exact/10 {
		t.Errorf("fullest window %d, of the last minute %d; %d admitted, by an exact log %d", s.Worst, s.Minute, s.Allowed, s.Exact)
	}
}

// The judge detects a fleet that admits too much, in whatever order it gets the decisions.
func TestJudge(t *testing.T) {
	j := newJudge(limit.PerSecond(2))
	for _, at := range []int64{1_500_000, 1_000_000, 1_200_000, 9_000_000} {
		j.add(verdict{at: at, key: "k", allowed: true})
	}
	j.add(verdict{at: 1_100_000, key: "other"}) // denied, although the exact log allows it
	if fullest := j.until(5_000_000); fullest != 3 || j.worst.Max() != 3 || j.allowed != 3 || j.exactAllowed != 3 || len(j.pending) != 1 {
		t.Errorf("fullest %d, %+v", fullest, j)
	}
	if fullest := j.until(9_000_000); fullest != 1 || j.worst.Max() != 3 || j.allowed != 4 || j.exactAllowed != 4 || len(j.pending) != 0 {
		t.Errorf("fullest %d, %+v", fullest, j)
	}
}

func TestPage(t *testing.T) {
	redistest.Shared(t) // starts goroutines of its own
	before := runtime.NumGoroutine()
	t.Run("served", func(t *testing.T) {
		d := played(t, limit.PerSecond(20))
		server := httptest.NewServer(d.Handler("<b>log</b>", "embedded"))
		defer server.Close()
		until(t, d, "there is something to show", func(s shown) bool { return s.Worst > 0 })
		for path, words := range map[string][]string{
			"/":            {"&lt;b&gt;log", "20/1s", `<rect x="236" `, `class="redis"`, "Cut all", "Restore all", `name="cut" value="4"`, "Redis decides for all four"},
			"/demo.css":    {".instance"},
			"/live.js":     {"EventSource"},
			"/live.css":    {"prefers-color-scheme"},
			"/instance/3/": {"Redis decides.", "key1"},
		} {
			response, err := http.Get(server.URL + path)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(response.Body)
			if err != nil || response.StatusCode != http.StatusOK || response.Header.Get("Content-Security-Policy") == "" {
				t.Errorf("%s: %v %v", path, response.Status, err)
			}
			for _, word := range words {
				if !strings.Contains(string(body), word) {
					t.Errorf("%s: %q is not in\n%s", path, word, body)
				}
			}
			_ = response.Body.Close()
		}
		for _, wrong := range []struct {
			form, site string
			status     int
		}{
			{"cut=5", "same-origin", 400}, {"cut=0", "same-origin", 400}, {"cut=some", "same-origin", 400}, {"", "same-origin", 400},
			{"speed=fast", "same-origin", 400}, {"speed=0", "same-origin", 400}, {"speed=1001", "same-origin", 400},
			{"cut=" + strings.Repeat("a", longestForm), "same-origin", 400},
			{"cut=all", "cross-site", 403}, {"speed=2", "cross-site", 403},
		} {
			request, err := http.NewRequest(http.MethodPost, server.URL+"/", strings.NewReader(wrong.form))
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			request.Header.Set("Sec-Fetch-Site", wrong.site)
			response, err := http.DefaultClient.Do(request)
			if err != nil || response.StatusCode != wrong.status {
				t.Errorf("%.20s: %v, %v", wrong.form, response.Status, err)
			}
			_ = response.Body.Close()
		}
		if s := d.shown(); s.Cut != nil || s.Speed != 100 {
			t.Errorf("what was refused was done: %+v", s)
		}
		if err := d.SetSpeed(90); err != nil || d.shown().Speed != 90 {
			t.Error(err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	defer func() {
		if t.Failed() {
			stacks := make([]byte, 1<<20)
			t.Logf("all goroutines:\n%s", stacks[:runtime.Stack(stacks, true)])
		}
	}()
	redistest.Eventually(t, "no goroutine is left behind", func() bool { return runtime.NumGoroutine() <= before })
}

// Under another site's name that is made to resolve to this machine, requests reach neither the page,
// nor its buttons, nor an instance's page. Under a name set with -host, they reach all of them.
func TestRebinding(t *testing.T) {
	d := played(t, limit.PerSecond(100_000), "demo.example")
	server := httptest.NewServer(d.Handler("a test", "a Redis"))
	defer server.Close()
	for host, want := range map[string]int{"attacker.example": http.StatusMisdirectedRequest, "demo.example": http.StatusOK} {
		for _, path := range []string{"/", "/instance/1/", "/live.js"} {
			request, err := http.NewRequest(http.MethodGet, server.URL+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			request.Host = host
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			if response.StatusCode != want {
				t.Errorf("%s of %s: %s", path, host, response.Status)
			}
		}
	}
	request, err := http.NewRequest(http.MethodPost, server.URL+"/", strings.NewReader("cut=all"))
	if err != nil {
		t.Fatal(err)
	}
	request.Host = "attacker.example"
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Origin", "http://attacker.example")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if s := d.shown(); response.StatusCode != http.StatusMisdirectedRequest || len(s.Cut) != 0 {
		t.Errorf("%s, cut: %v", response.Status, s.Cut)
	}
}
