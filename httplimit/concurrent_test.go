package httplimit

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/tierlimit/tierlimit/limit"
)

// A request in flight holds a unit from before the handler is called until the handler returns,
// including the time in which it streams, and also if it panics. Clients are told the unit
// (qu="concurrent-requests").
func TestRequestsInFlight(t *testing.T) {
	l := newLimiter(t)
	inFlight, rate := newRule(t, l, "in-flight", limit.Concurrent(1)), newRule(t, l, "rate", limit.PerHour(10))
	everyone := func(*http.Request) string { return "everyone" }
	streaming, end := make(chan bool, 1), make(chan bool)
	stream := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("first"))
		_ = http.NewResponseController(w).Flush()
		streaming <- true
		if !<-end {
			panic(http.ErrAbortHandler)
		}
	})
	for name, options := range map[string][]Option{
		"alone":        {Limit(inFlight, everyone)},
		"with another": {Limit(inFlight, everyone), Limit(rate, everyone)},
	} {
		t.Run(name, func(t *testing.T) {
			h := newMiddleware(t, l, options...)(stream)
			for _, ends := range []bool{true, false} {
				before := used(t, rate, "everyone")
				first, over := httptest.NewRecorder(), make(chan bool)
				go func() {
					defer func() { _ = recover(); over <- true }()
					h.ServeHTTP(first, httptest.NewRequest(http.MethodGet, "/", nil))
				}()
				<-streaming
				if policy, left := first.Header()[fieldPolicy][0], first.Header()[fieldLimit][0]; len(options) == 1 &&
					(policy != `"in-flight";q=1;qu="concurrent-requests"` || left != `"in-flight";r=0`) {
					t.Errorf("%s, %s", policy, left)
				}
				if second := get(h); second.Code != http.StatusTooManyRequests || second.Header().Get(fieldRetryAfter) != "1" {
					t.Errorf("while another is in flight: %d, %v", second.Code, second.Header())
				}
				if after := used(t, rate, "everyone"); after != before+int64(len(options)-1) {
					t.Errorf("the rate was charged %d units (law 9)", after-before)
				}
				end <- ends
				<-over
				if held := used(t, inFlight, "everyone"); held != 0 {
					t.Errorf("%d units are held after the handler", held)
				}
			}
		})
	}
}

func TestRequestsInFlightAreNotSettled(t *testing.T) {
	l := newLimiter(t)
	rule := newRule(t, l, "in-flight", limit.Concurrent(1))
	key := func(*http.Request) string { return "k" }
	for name, option := range map[string]LimitOption{
		"Settle": Settle(func(*http.Request, Response) int64 { return 0 }), "HandlerCost": HandlerCost(),
	} {
		if _, err := New(l, Limit(rule, key, option)); !errors.Is(err, limit.ErrInvalidOption) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
