package httplimit

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// newLimiter returns a limiter on the shared Redis with keys of its own. Its deadline is long, because
// tests that are not about deadlines must not depend on them.
func newLimiter(t testing.TB, options ...tiered.Option) *tiered.Limiter {
	t.Helper()
	return newLimiterOn(t, redistest.Shared(t).Client(t), append([]tiered.Option{tiered.Prefix(redistest.Prefix())}, options...)...)
}

func newLimiterOn(t testing.TB, client redis.UniversalClient, options ...tiered.Option) *tiered.Limiter {
	t.Helper()
	options = append([]tiered.Option{
		tiered.Logger(slog.New(slog.DiscardHandler)), tiered.Deadline(5 * time.Second),
		tiered.LedgerKeys(1000), tiered.RememberDenials(1000),
	}, options...)
	l := redistest.Reached(t, client, func() (*tiered.Limiter, error) { return tiered.New(client, options...) })
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func newRule(t testing.TB, l *tiered.Limiter, name string, lim limit.Limit, options ...tiered.RuleOption) *tiered.Rule {
	t.Helper()
	r, err := l.Rule(name, lim, options...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func newMiddleware(t testing.TB, l *tiered.Limiter, options ...Option) func(http.Handler) http.Handler {
	t.Helper()
	limits, err := New(l, append([]Option{Logger(slog.New(slog.DiscardHandler))}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	return limits
}

// done is a handler that does nothing and succeeds.
var done = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

// get sends a request to a handler, without using a network.
func get(h http.Handler, change ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func from(remote string) func(*http.Request) {
	return func(r *http.Request) { r.RemoteAddr = remote }
}

func with(header, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(header, value) }
}

// statuses sends n requests and returns how often each status was the answer.
func statuses(h http.Handler, n int, change ...func(*http.Request)) map[int]int {
	counts := make(map[int]int)
	for range n {
		counts[get(h, change...).Code]++
	}
	return counts
}
