package httplimit

import (
	"net/http"
	"testing"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// A client cannot tell that a rule is on a dry run, alone or beside another rule.
func TestDryRunIsNotSeen(t *testing.T) {
	for name, style := range map[string]HeaderStyle{"draft": DraftHeaders, "x": XHeaders} {
		t.Run(name, func(t *testing.T) {
			l := newLimiter(t)
			dry := newRule(t, l, "dry", limit.PerHour(1), tiered.DryRun())
			real := newRule(t, l, "real", limit.PerHour(4))
			alone := newMiddleware(t, l, Limit(dry, ClientAddress), Headers(style))(done)
			beside := newMiddleware(t, l, Limit(dry, ClientAddress), Limit(real, ClientAddress), Headers(style))(done)
			for range 3 {
				w := get(alone)
				if w.Code != http.StatusOK || len(w.Header()) != 0 {
					t.Errorf("%d, %v", w.Code, w.Header())
				}
			}
			for i := range 4 {
				w := get(beside)
				if w.Code != http.StatusOK {
					t.Errorf("request %d: %d", i, w.Code)
				}
				if style == DraftHeaders {
					if got := parsed(t, w.Header(), "RateLimit-Policy"); len(got) != 1 || got["real"] == nil {
						t.Errorf("%v", got)
					}
				} else if got := w.Header().Get("X-RateLimit-Limit"); got != "4" {
					t.Errorf("limit %s", got)
				}
			}
			if w := get(beside); w.Code != http.StatusTooManyRequests {
				t.Errorf("%d, though the other rule denies", w.Code)
			}
		})
	}
}

// A request that a dry run would have denied, or whose cost is invalid, was not charged, so its charge is
// not corrected afterwards.
func TestDryRunSettlesNothing(t *testing.T) {
	l := newLimiter(t)
	dry := newRule(t, l, "dry", limit.PerHour(10), tiered.DryRun())
	for _, c := range []struct{ cost, actual int64 }{{5, 0}, {5, 2}, {5, 8}, {-5, 2}, {0, 2}, {11, 2}, {11, 12}} {
		h := newMiddleware(t, l, Limit(dry, func(*http.Request) string { return "everyone" },
			Cost(func(*http.Request) int64 { return c.cost }),
			Settle(func(*http.Request, Response) int64 { return c.actual })))(done)
		if err := dry.Reset(t.Context(), "everyone"); err != nil {
			t.Fatal(err)
		}
		if _, err := dry.AllowN(t.Context(), "everyone", 7); err != nil {
			t.Fatal(err)
		}
		get(h)
		if n := used(t, dry, "everyone"); n != 7 {
			t.Errorf("%+v: %d units used, 7 before", c, n)
		}
	}
}
