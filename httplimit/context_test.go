package httplimit

import (
	"bytes"
	"context"
	"log/slog"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

func keyed(key string) KeyFunc { return func(*http.Request) string { return key } }

func TestHandlersSeeTheDecisions(t *testing.T) {
	l := newLimiter(t)
	outer, tenant, address := newRule(t, l, "outer", limit.PerHour(100)), newRule(t, l, "tenant", limit.PerHour(10)), newRule(t, l, "address", limit.PerHour(20))
	var seen []Decided
	handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = Decisions(r.Context()) })
	inner := newMiddleware(t, l, ForHandlers(), Limit(tenant, keyed("acme")), Limit(address, keyed("192.0.2.1"), Cost(func(*http.Request) int64 { return 3 })))
	around := newMiddleware(t, l, ForHandlers(), Limit(outer, keyed("all")))
	get(around(inner(handler)))
	if len(seen) != 3 {
		t.Fatalf("%d decisions: %+v", len(seen), seen)
	}
	for i, want := range []struct {
		rule      *tiered.Rule
		key       string
		remaining int64
	}{{outer, "all", 99}, {tenant, "acme", 9}, {address, "192.0.2.1", 17}} {
		if d := seen[i]; d.Rule != want.rule || d.Key != want.key || !d.Decision.Allowed || d.Decision.Remaining != want.remaining {
			t.Errorf("decision %d: %+v", i, d)
		}
	}
	// Without the option, the handler sees no decisions.
	get(newMiddleware(t, l, Limit(tenant, keyed("acme")))(handler))
	if seen != nil || Decisions(context.Background()) != nil {
		t.Errorf("%+v", seen)
	}
}

func TestHandlersSayWhatARequestTook(t *testing.T) {
	l := newLimiter(t)
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		want    int64
	}{
		"nothing said": {func(http.ResponseWriter, *http.Request) {}, 10},
		"less":         {func(_ http.ResponseWriter, r *http.Request) { SetCost(r.Context(), 4) }, 4},
		"more":         {func(_ http.ResponseWriter, r *http.Request) { SetCost(r.Context(), 25) }, 25},
		"nothing":      {func(_ http.ResponseWriter, r *http.Request) { SetCost(r.Context(), 0) }, 0},
		"negative":     {func(_ http.ResponseWriter, r *http.Request) { SetCost(r.Context(), -7) }, 0},
		"twice":        {func(_ http.ResponseWriter, r *http.Request) { SetCost(r.Context(), 4); SetCost(r.Context(), 6) }, 6},
		"and panics": {func(_ http.ResponseWriter, r *http.Request) {
			SetCost(r.Context(), 7)
			panic(http.ErrAbortHandler)
		}, 7},
	} {
		t.Run(name, func(t *testing.T) {
			tokens, requests := newRule(t, l, "tokens", limit.PerHour(100)), newRule(t, l, "requests", limit.PerHour(100))
			limits := newMiddleware(t, l,
				Limit(tokens, keyed(name), Cost(func(*http.Request) int64 { return 10 }), HandlerCost()),
				Limit(requests, keyed(name)))
			func() {
				defer func() { _ = recover() }()
				get(limits(c.handler))
			}()
			if got := used(t, tokens, name); got != c.want {
				t.Errorf("%d units charged, want %d", got, c.want)
			}
			if got := used(t, requests, name); got != 1 {
				t.Errorf("%d requests charged", got)
			}
		})
	}
	said := true
	get(newMiddleware(t, l, ForHandlers(), Limit(newRule(t, l, "plain", limit.PerHour(10)), keyed("k")))(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		said = SetCost(r.Context(), 5)
	})))
	if said {
		t.Error("a cost was taken that no limit asks for")
	}
	rule := newRule(t, l, "both", limit.PerHour(10))
	get(newMiddleware(t, l, Limit(rule, keyed("k")),
		Limit(newRule(t, l, "not-for-it", limit.PerHour(10)), keyed("k"), HandlerCost(), When(func(*http.Request) bool { return false })),
	)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if SetCost(r.Context(), 5) {
			t.Error("a cost was taken that no limit for the request asks for")
		}
	})))
	if _, err := New(l, Limit(rule, keyed("k"), HandlerCost(), Settle(func(*http.Request, Response) int64 { return 1 }))); err == nil {
		t.Error("both Settle and HandlerCost")
	}
}

// A middleware around this one, such as for logs or traces, finds in its own request the pattern that
// an inner mux matched, however the request ends.
func TestThePatternIsSeenOutside(t *testing.T) {
	l := newLimiter(t)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /items/{id}", func(_ http.ResponseWriter, r *http.Request) {
		if r.PathValue("id") == "0" {
			panic(http.ErrAbortHandler)
		}
	})
	for name, options := range map[string][]Option{
		"plain":        {Limit(newRule(t, l, "plain", limit.PerHour(10)), Everyone)},
		"for handlers": {Limit(newRule(t, l, "for-handlers", limit.PerHour(10)), Everyone), ForHandlers()},
		"settled":      {Limit(newRule(t, l, "settled", limit.PerHour(10)), Everyone, HandlerCost())},
	} {
		limited := newMiddleware(t, l, options...)(mux)
		for _, path := range []string{"/items/7", "/items/0"} {
			r := httptest.NewRequest(http.MethodGet, path, nil)
			func() {
				defer func() { _ = recover() }()
				limited.ServeHTTP(httptest.NewRecorder(), r)
			}()
			if r.Pattern != "GET /items/{id}" {
				t.Errorf("%s: %s has the pattern %q", name, path, r.Pattern)
			}
		}
	}
}

// Uploaded files are removed when the request is over, whether or not the middleware gives the request
// a new context.
func TestUploadsAreRemoved(t *testing.T) {
	l := newLimiter(t)
	for name, options := range map[string][]Option{
		"plain":        {Limit(newRule(t, l, "plain", limit.PerHour(10)), Everyone)},
		"for handlers": {Limit(newRule(t, l, "for-handlers", limit.PerHour(10)), Everyone), ForHandlers()},
		"settled":      {Limit(newRule(t, l, "settled", limit.PerHour(10)), Everyone, HandlerCost())},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("TMPDIR", dir)
			files := func() int {
				entries, err := os.ReadDir(dir)
				if err != nil {
					t.Error(err)
				}
				return len(entries)
			}
			uploaded := 0
			server := httptest.NewServer(newMiddleware(t, l, options...)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if err := r.ParseMultipartForm(0); err != nil {
					t.Error(err)
				}
				uploaded = files()
			})))
			defer server.Close()
			var body bytes.Buffer
			form := multipart.NewWriter(&body)
			part, err := form.CreateFormFile("file", "name")
			if err != nil {
				t.Fatal(err)
			}
			_, _ = part.Write(make([]byte, 11<<20)) // more than is ever kept in memory
			if err := form.Close(); err != nil {
				t.Fatal(err)
			}
			response, err := http.Post(server.URL, form.FormDataContentType(), &body)
			if err != nil {
				t.Fatal(err)
			}
			_ = response.Body.Close()
			if uploaded != 1 {
				t.Errorf("the handler sees %d files", uploaded)
			}
			redistest.Eventually(t, "the files are removed", func() bool { return files() == 0 })
		})
	}
}

func TestFailOpen(t *testing.T) {
	l := newLimiter(t)
	rule := newRule(t, l, "r", limit.PerHour(10))
	reached := 0
	handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached++ })
	tooMuch := func(*http.Request) int64 { return 11 }
	var logged bytes.Buffer
	logger := Logger(slog.New(slog.NewTextHandler(&logged, nil)))
	if w := get(newMiddleware(t, l, FailOpen(), Limit(rule, keyed("k"), Cost(tooMuch)), logger)(handler)); w.Code != http.StatusOK || reached != 1 {
		t.Errorf("a mistake: status %d, reached %d times", w.Code, reached)
	}
	if !strings.Contains(logged.String(), "level=ERROR") {
		t.Errorf("a mistake is logged as %q", &logged)
	}
	logged.Reset()
	open := newMiddleware(t, l, FailOpen(), Limit(rule, keyed("k")), logger)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	open(handler).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	if w.Code != http.StatusOK || reached != 2 {
		t.Errorf("a closed limiter: status %d, reached %d times", w.Code, reached)
	}
	if logged.Len() > 0 {
		t.Errorf("a closed limiter is logged as a mistake: %q", &logged)
	}
}
