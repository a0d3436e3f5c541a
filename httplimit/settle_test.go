package httplimit

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlimit/tierlimit/embedded"
	"github.com/tierlimit/tierlimit/internal/admission"
	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// used returns the number of units of a limit that a key has used.
func used(t *testing.T, rule *tiered.Rule, key string) int64 {
	t.Helper()
	d, err := rule.Peek(context.Background(), key, 1)
	if err != nil {
		t.Fatal(err)
	}
	return rule.Limit().Quota() - d.Remaining
}

func TestSettleChargesWhatAResponseTook(t *testing.T) {
	l := newLimiter(t)
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		settle  func(*http.Request, Response) int64
		want    int64
	}{
		"as reserved":        {done, func(*http.Request, Response) int64 { return 10 }, 10},
		"less":               {done, func(*http.Request, Response) int64 { return 3 }, 3},
		"nothing":            {done, func(*http.Request, Response) int64 { return 0 }, 0},
		"negative":           {done, func(*http.Request, Response) int64 { return -5 }, 0},
		"more":               {done, func(*http.Request, Response) int64 { return 25 }, 25},
		"more than there is": {done, func(*http.Request, Response) int64 { return 1000 }, 100},
		"bytes": {
			func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, "seven!!")
				_, _ = w.Write([]byte("three"))
				_, _ = io.Copy(w, struct{ io.Reader }{strings.NewReader("five!")})
			},
			func(_ *http.Request, r Response) int64 { return r.Bytes }, 17,
		},
		"status": {
			func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusEarlyHints)
				w.WriteHeader(http.StatusTeapot)
			},
			func(_ *http.Request, r Response) int64 { return int64(r.Status) - 400 }, 18,
		},
		"status by default": {done, func(_ *http.Request, r Response) int64 { return int64(r.Status) - 180 }, 20},
		"header": {
			func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Cost", "7") },
			func(_ *http.Request, r Response) int64 {
				n, _ := strconv.ParseInt(r.Header.Get("Cost"), 10, 64)
				return n
			}, 7,
		},
		"panic": {
			func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			func(_ *http.Request, r Response) int64 {
				if r.Aborted {
					return 1
				}
				return 2
			}, 1,
		},
		"status of a panic": {
			func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusEarlyHints)
				panic(http.ErrAbortHandler)
			},
			func(_ *http.Request, r Response) int64 { return int64(r.Status) - 480 }, 20,
		},
		"status of a panic after it was sent": {
			func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusTeapot)
				panic(http.ErrAbortHandler)
			},
			func(_ *http.Request, r Response) int64 { return int64(r.Status) - 400 }, 18,
		},
		"status of a panic after a flush": {
			func(w http.ResponseWriter, _ *http.Request) {
				_ = http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			},
			func(_ *http.Request, r Response) int64 { return int64(r.Status) - 180 }, 20,
		},
		"status of a panic in a body": {
			func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, "half")
				panic(http.ErrAbortHandler)
			},
			func(_ *http.Request, r Response) int64 { return int64(r.Status) - 180 }, 20,
		},
		"status of a panic after a write": {
			func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write([]byte("half"))
				panic(http.ErrAbortHandler)
			},
			func(_ *http.Request, r Response) int64 { return int64(r.Status) - 180 }, 20,
		},
		"status of a panic after a copy": {
			func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.Copy(w, struct{ io.Reader }{strings.NewReader("half")})
				panic(http.ErrAbortHandler)
			},
			func(_ *http.Request, r Response) int64 { return int64(r.Status) - 180 }, 20,
		},
		"no panic": {done, func(_ *http.Request, r Response) int64 {
			if r.Aborted {
				return 1
			}
			return 2
		}, 2},
		"client goes away": {
			func(_ http.ResponseWriter, r *http.Request) { r.Context().Value(cancelKey{}).(context.CancelFunc)() },
			func(*http.Request, Response) int64 { return 4 }, 4,
		},
	} {
		t.Run(name, func(t *testing.T) {
			rule := newRule(t, l, strings.ReplaceAll(name, " ", "-"), limit.PerHour(100))
			h := newMiddleware(t, l, Limit(rule, Everyone, Cost(func(*http.Request) int64 { return 10 }), Settle(c.settle)))(c.handler)
			func() {
				defer func() {
					if p := recover(); p != nil && p != http.ErrAbortHandler {
						panic(p)
					}
				}()
				get(h, func(r *http.Request) {
					ctx, cancel := context.WithCancel(r.Context())
					t.Cleanup(cancel)
					*r = *r.WithContext(context.WithValue(ctx, cancelKey{}, cancel))
				})
			}()
			if got := used(t, rule, "all"); got != c.want {
				t.Errorf("%d units are charged, want %d", got, c.want)
			}
		})
	}
}

// Units that a response used beyond the free ones are not lost. They are debt, for which the next
// requests wait although other units have come back.
func TestSettleMakesDebtOfWhatDoesNotFit(t *testing.T) {
	l := newLimiter(t)
	for _, a := range limit.Algorithms() {
		rule := newRule(t, l, a.Name(), limit.PerHour(100).WithBurst(100), tiered.Use(a))
		other, err := rule.AllowN(context.Background(), "all", 60)
		if err != nil || !other.Allowed {
			t.Fatalf("%+v, %v", other, err)
		}
		h := newMiddleware(t, l, Limit(rule, Everyone,
			Cost(func(*http.Request) int64 { return 10 }), Settle(func(*http.Request, Response) int64 { return 100 })))(done)
		get(h)
		if err := rule.Refund(context.Background(), "all", &other, 60); err != nil {
			t.Fatal(err)
		}
		if got := used(t, rule, "all"); got != 100 {
			t.Errorf("%v: %d units are charged, the response took 100", a, got)
		}
	}
}

type cancelKey struct{}

// A charge that was made without Redis is given back to this instance's own record, unless the charge
// has left the window. Only the elapsed time shows whether it has.
func TestSettleOfADecisionWithoutRedis(t *testing.T) {
	server := redistest.Start(t)
	l := newLimiterOn(t, server.Client(t))
	rule := newRule(t, l, "api", limit.PerHour(100))
	server.Kill()
	for !l.Degraded() {
		_, _ = rule.Allow(context.Background(), "someone else")
	}
	h := newMiddleware(t, l, Limit(rule, Everyone,
		Cost(func(*http.Request) int64 { return 60 }), Settle(func(*http.Request, Response) int64 { return 10 })))(done)
	if got := statuses(h, 5); got[200] != 5 {
		t.Errorf("5 requests of 10 that reserve 60 of 100: %v", got)
	}

	for ago, want := range map[time.Duration]int64{time.Minute: 10, time.Hour: 60} {
		q := tiered.Request{Rule: rule, Key: ago.String(), Cost: 60}
		d, err := rule.AllowN(context.Background(), q.Key, q.Cost)
		if err != nil {
			t.Fatal(err)
		}
		if err := admission.Settle(context.Background(), q, &d, 10, ago); err != nil {
			t.Fatal(err)
		}
		if got := used(t, rule, q.Key); got != want {
			t.Errorf("settled after %v: %d units are charged, want %d", ago, got, want)
		}
	}
}

// breaking is a reader of left bytes whose next Read panics.
type breaking struct{ left int }

func (b *breaking) Read(p []byte) (int, error) {
	if b.left == 0 {
		panic(http.ErrAbortHandler)
	}
	n := min(len(p), b.left)
	b.left -= n
	return n, nil
}

// The transferred bytes are charged, however the handler ends, and a panic is passed on.
func TestSettleChargesWhatWasTransferredBeforeTheEnd(t *testing.T) {
	const size = 500_000
	l := newLimiter(t)
	body := strings.Repeat("x", size)
	for name, handler := range map[string]http.HandlerFunc{
		"source-panics": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.Copy(w, &breaking{size}) },
		"limited-source-panics": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.CopyN(w, &breaking{size}, 10*size)
		},
		"source-panics-after-writes": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, body[:size/2])
			_, _ = io.Copy(w, &breaking{size / 2})
		},
		"aborts": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, body)
			panic(http.ErrAbortHandler)
		},
		"hijacks": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, body)
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_ = conn.Close()
			panic(http.ErrAbortHandler)
		},
	} {
		t.Run(name, func(t *testing.T) {
			rule := newRule(t, l, name, limit.PerHour(1000))
			limited := newMiddleware(t, l, Limit(rule, Everyone, Settle(func(_ *http.Request, r Response) int64 {
				if !r.Aborted {
					t.Error("the handler is said to have returned")
				}
				return r.Bytes / 1000
			})))(handler)
			ended := make(chan any, 1)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer func() {
					p := recover()
					ended <- p
					panic(p)
				}()
				limited.ServeHTTP(w, r)
			}))
			defer server.Close()
			if response, err := http.Get(server.URL); err == nil {
				_, _ = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
			}
			if p := <-ended; p != http.ErrAbortHandler {
				t.Errorf("the panic has become %v", p)
			}
			if got := used(t, rule, "all"); got != size/1000 {
				t.Errorf("%d units are charged, want %d", got, size/1000)
			}
		})
	}
}

// The function of Settle gets the status that the client gets, and the client gets the handler's
// response unchanged.
func TestSettleIsToldWhatIsSent(t *testing.T) {
	l := newLimiter(t)
	send := func(w http.ResponseWriter, body string) { // uses the writer's ReadFrom
		_, _ = io.Copy(w, struct{ io.Reader }{strings.NewReader(body)})
	}
	for name, c := range map[string]struct {
		handler func(http.ResponseWriter)
		status  int
	}{
		"nothing":               {func(http.ResponseWriter) {}, 200},
		"a-body":                {func(w http.ResponseWriter) { _, _ = io.WriteString(w, "x"); w.WriteHeader(500) }, 200},
		"a-status":              {func(w http.ResponseWriter) { w.WriteHeader(404); _, _ = io.WriteString(w, "x") }, 404},
		"two":                   {func(w http.ResponseWriter) { w.WriteHeader(200); w.WriteHeader(500) }, 200},
		"early-hints":           {func(w http.ResponseWriter) { w.WriteHeader(103); w.WriteHeader(201) }, 201},
		"flushed":               {func(w http.ResponseWriter) { w.(http.Flusher).Flush(); w.WriteHeader(500) }, 200},
		"an-empty-copy":         {func(w http.ResponseWriter) { send(w, ""); w.WriteHeader(404) }, 404},
		"a-copy":                {func(w http.ResponseWriter) { send(w, "x"); w.WriteHeader(404) }, 200},
		"an-empty-copy-at-last": {func(w http.ResponseWriter) { w.WriteHeader(202); send(w, "") }, 202},
	} {
		var told Response
		h := newMiddleware(t, l, Limit(newRule(t, l, name, limit.PerHour(10)), Everyone, Settle(func(_ *http.Request, r Response) int64 {
			told = r
			return 1
		})))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { c.handler(w) }))
		server := httptest.NewUnstartedServer(h)
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		server.Start()
		response, err := http.Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		server.Close() // waits for the handler, which settles
		if response.StatusCode != c.status || told.Status != c.status || told.Bytes != int64(len(body)) || err != nil {
			t.Errorf("%s: %d and %d bytes arrive, Settle is told %d and %d; want %d", name, response.StatusCode, len(body), told.Status, told.Bytes, c.status)
		}
	}
	w := &recorder{ResponseWriter: httptest.NewRecorder()}
	func() {
		defer func() { _ = recover() }()
		w.WriteHeader(1000) // panics
	}()
	if status := w.response(true).Status; status != 500 {
		t.Errorf("no such status: %d", status)
	}
	broken := &recorder{ResponseWriter: brokenWriter{httptest.NewRecorder()}}
	_, written := broken.Write([]byte("x"))
	copied, read := broken.ReadFrom(strings.NewReader("x"))
	if written != errBroken || read != errBroken || copied != 0 || broken.FlushError() != errBroken || broken.bytes != 0 {
		t.Errorf("of a client that has gone: %v, %v, %d bytes of %d", written, read, copied, broken.bytes)
	}
	w = &recorder{ResponseWriter: httptest.NewRecorder()} // a writer without Hijack
	if _, _, err := w.Hijack(); err == nil || w.response(false).Status != 200 {
		t.Errorf("not taken over: %v, status %d", err, w.response(false).Status)
	}
	w = &recorder{ResponseWriter: struct{ http.ResponseWriter }{httptest.NewRecorder()}} // no Flush, as in an http.TimeoutHandler
	if err := w.FlushError(); !errors.Is(err, http.ErrNotSupported) {
		t.Errorf("flushed: %v", err)
	}
	if w.WriteHeader(500); w.response(false).Status != 500 {
		t.Errorf("a status after a flush that did nothing: %d", w.response(false).Status)
	}
	w = &recorder{ResponseWriter: httptest.NewRecorder()}
	if w.WriteHeader(101); w.response(false).Status != 101 {
		t.Errorf("another protocol: status %d", w.response(false).Status)
	}
	w = &recorder{ResponseWriter: hijackable{httptest.NewRecorder()}} // as a proxy answers CONNECT
	w.WriteHeader(200)
	if _, _, err := w.Hijack(); err != nil || w.response(false).Status != 200 {
		t.Errorf("taken over after a status: %v, status %d", err, w.response(false).Status)
	}
}

// hijackable is the response writer of a connection that can be taken over.
type hijackable struct{ http.ResponseWriter }

func (hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, nil }

// A function of Settle is told about the response also if limits without Settle follow.
func TestSettleBesideAnotherLimit(t *testing.T) {
	l := newLimiter(t)
	settled, plain := newRule(t, l, "settled", limit.PerHour(100)), newRule(t, l, "plain", limit.PerHour(100))
	h := newMiddleware(t, l,
		Limit(settled, Everyone, Settle(func(_ *http.Request, r Response) int64 { return r.Bytes })),
		Limit(plain, Everyone),
	)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "seven!!") }))
	get(h)
	if settled, plain := used(t, settled, "all"), used(t, plain, "all"); settled != 7 || plain != 1 {
		t.Errorf("%d and %d units are charged, want 7 and 1", settled, plain)
	}
}

// A handler that writes text allocates nothing for the recorder, as without it.
func TestTextIsNotCopied(t *testing.T) {
	text := strings.Repeat("x", 100)
	w := &recorder{ResponseWriter: textWriter{}}
	if n := testing.AllocsPerRun(10, func() { _, _ = io.WriteString(w, text) }); n != 0 || w.bytes != 11*100 || w.status != 200 {
		t.Errorf("%v allocations, %d bytes, status %d", n, w.bytes, w.status)
	}
}

type textWriter struct{ http.ResponseWriter }

func (textWriter) WriteString(text string) (int, error) { return len(text), nil }

// A copy that fails at its first write has sent the header: a status that the handler chooses after that is not
// sent. Over HTTP/2, every large copy into a response to HEAD fails if the response has a header field.
func TestSettleIsToldTheStatusOfACopyThatFailed(t *testing.T) {
	l := newLimiter(t)
	settled := make(chan int, 1)
	server := httptest.NewUnstartedServer(newMiddleware(t, l,
		Limit(newRule(t, l, "rule", limit.PerHour(10)), Everyone, Settle(func(_ *http.Request, r Response) int64 {
			settled <- r.Status
			return 1
		})),
	)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if _, err := io.Copy(w, struct{ io.Reader }{strings.NewReader(strings.Repeat("x", 100_000))}); err != nil {
			http.Error(w, "", http.StatusInternalServerError)
		}
	})))
	server.EnableHTTP2 = true
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	response, err := server.Client().Head(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if status := <-settled; status != response.StatusCode {
		t.Errorf("Settle is told %d, the client %d", status, response.StatusCode)
	}
}

// A failed correction of a charge is logged.
func TestSettleThatFails(t *testing.T) {
	l := newLimiter(t)
	var logged strings.Builder
	h := newMiddleware(t, l, Logger(slog.New(slog.NewTextHandler(&logged, nil))), Limit(newRule(t, l, "api", limit.PerHour(10)), Everyone, HandlerCost()))(
		http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			SetCost(r.Context(), 0)
			if r.URL.Path == "/close" {
				_ = l.Close()
			}
		}))
	if w := get(h); w.Code != 200 || logged.String() != "" {
		t.Errorf("%d, logged %s about a charge that was corrected", w.Code, logged.String())
	}
	if w := get(h, func(r *http.Request) { r.URL.Path = "/close" }); w.Code != 200 || !strings.Contains(logged.String(), "a charge could not be corrected") || !strings.Contains(logged.String(), "rule=api") {
		t.Errorf("%d, logged %s", w.Code, logged.String())
	}
}

// brokenWriter is the response writer of a client that has gone.
type brokenWriter struct{ http.ResponseWriter }

var errBroken = errors.New("broken")

func (brokenWriter) Write([]byte) (int, error) { return 0, errBroken }
func (brokenWriter) FlushError() error         { return errBroken }

// When a request ends, the time by which its decision had to be made (tiered.DecideBy) is long over.
// The unused rest is given back in spite of that.
func TestSettleDoesNotHeedDecideBy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := embedded.Open(tiered.LedgerKeys(100), tiered.RememberDenials(100))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		settled, said := newRule(t, l, "settled", limit.PerHour(100)), newRule(t, l, "said", limit.PerHour(100))
		ten := Cost(func(*http.Request) int64 { return 10 })
		h := newMiddleware(t, l,
			Limit(settled, Everyone, ten, Settle(func(*http.Request, Response) int64 { return 3 })),
			Limit(said, Everyone, ten, HandlerCost()),
		)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			SetCost(r.Context(), 13)
			time.Sleep(time.Minute)
		}))
		get(h, func(r *http.Request) {
			*r = *r.WithContext(tiered.DecideBy(r.Context(), time.Now().Add(time.Second)))
		})
		if used(t, settled, "all") != 3 || used(t, said, "all") != 13 {
			t.Errorf("%d and %d units are charged", used(t, settled, "all"), used(t, said, "all"))
		}
	})
}

// Requests may be cancelled while Redis decides about them. Their handlers are called nevertheless, and their
// charges are corrected.
func TestSettleOfRequestsThatAreCancelledMeanwhile(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		l := newLimiterOn(t, bubble.Client(t))
		settled, said := newRule(t, l, "settled", limit.PerHour(100)), newRule(t, l, "said", limit.PerHour(100))
		ten := Cost(func(*http.Request) int64 { return 10 })
		h := newMiddleware(t, l,
			Limit(settled, Everyone, ten, Settle(func(*http.Request, Response) int64 { return 3 })),
			Limit(said, Everyone, ten, HandlerCost()),
		)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { SetCost(r.Context(), 4) }))
		ctx, cancel := context.WithCancel(t.Context())
		bubble.Late.Store(int64(10 * time.Millisecond))
		time.AfterFunc(15*time.Millisecond, cancel) // while all but the first share the second trip
		var requests sync.WaitGroup
		for range 5 {
			requests.Go(func() { get(h, func(r *http.Request) { *r = *r.WithContext(ctx) }) })
		}
		requests.Wait()
		if used(t, settled, "all") != 5*3 || used(t, said, "all") != 5*4 {
			t.Errorf("%d and %d units are charged", used(t, settled, "all"), used(t, said, "all"))
		}
	})
}

// A file is still sent with sendfile, and its bytes are counted.
func TestSettleCountsFiles(t *testing.T) {
	const size = 500_000
	l := newLimiter(t)
	rule := newRule(t, l, "files", limit.PerHour(1001))
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(newMiddleware(t, l, Limit(rule, Everyone, Settle(func(_ *http.Request, r Response) int64 { return r.Bytes / 1000 })))(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/served" {
				http.ServeFile(w, r, path)
				return
			}
			file, err := os.Open(path)
			if err != nil {
				t.Error(err)
				return
			}
			defer file.Close()
			w.Header().Set("Content-Length", strconv.Itoa(size))
			n, err := w.(io.ReaderFrom).ReadFrom(file)
			if n != size || err != nil {
				t.Errorf("%d bytes, %v", n, err)
			}
		})))
	for _, path := range []string{"/served", "/copied"} {
		response, err := http.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		if n != size || err != nil {
			t.Errorf("%s: %d bytes, %v", path, n, err)
		}
	}
	server.Close() // waits for the handlers, which settle
	if got := used(t, rule, "all"); got != 2*size/1000 {
		t.Errorf("%d units are charged, want %d", got, 2*size/1000)
	}
}
