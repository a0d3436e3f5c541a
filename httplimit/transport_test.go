package httplimit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/inspect"
	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

func newTransport(t testing.TB, rule *tiered.Rule, options ...TransportOption) *Transport {
	t.Helper()
	transport, err := NewTransport(&http.Transport{}, rule, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

// upstreamServer starts a server that counts the requests that reach it.
func upstreamServer(t *testing.T, answer http.HandlerFunc) (*httptest.Server, *atomic.Int64) {
	var calls atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		answer(w, r)
	}))
	t.Cleanup(server.Close)
	return server, &calls
}

// Three processes with 8 workers each call an upstream as fast as they are allowed to. Together they
// are not faster than its quota.
func TestAFleetStaysWithinAnUpstreamsQuota(t *testing.T) {
	const quota, window, cost, calls = 20, 300 * time.Millisecond, 2, 60
	var mu sync.Mutex
	var seen []time.Time
	server, _ := upstreamServer(t, func(http.ResponseWriter, *http.Request) {
		mu.Lock()
		seen = append(seen, time.Now())
		mu.Unlock()
	})
	shared, prefix := redistest.Shared(t), redistest.Prefix()
	var left atomic.Int64
	left.Store(calls)
	var workers sync.WaitGroup
	for range 3 {
		l := newLimiterOn(t, shared.Client(t), tiered.Prefix(prefix))
		rule := newRule(t, l, "upstream", limit.Per(quota, window))
		client := &http.Client{Transport: newTransport(t, rule, TransportCost(func(*http.Request) int64 { return cost }))}
		for range 8 {
			workers.Go(func() {
				for left.Add(-1) >= 0 {
					response, err := client.Get(server.URL)
					if err != nil {
						t.Error(err)
						return
					}
					_ = response.Body.Close()
				}
			})
		}
	}
	workers.Wait()
	if len(seen) != calls {
		t.Fatalf("the upstream saw %d calls, want %d", len(seen), calls)
	}
	// Calls are charged in time, but arrive a little later, some more than others. So the test looks at
	// the whole, with half a window to spare.
	const perWindow = quota / cost
	if took := seen[len(seen)-1].Sub(seen[0]); took < window*(calls/perWindow-1)-window/2 {
		t.Errorf("%d calls took %v: the quota is %d per %v", calls, took, perWindow, window)
	}
}

// Law 6, for clients: a request that cannot be sent in time gets an error that says why, and when to
// retry.
func TestTransportFailsClearly(t *testing.T) {
	l := newLimiter(t)
	server, calls := upstreamServer(t, func(http.ResponseWriter, *http.Request) {})
	rule := newRule(t, l, "upstream", limit.PerHour(1))
	for name, c := range map[string]struct {
		options []TransportOption
		timeout time.Duration
	}{
		"at once":                  {[]TransportOption{MaxWait(0)}, 0},
		"longer than it may wait":  {nil, 0},
		"longer than the client's": {[]TransportOption{MaxWait(2 * time.Hour)}, 10 * time.Second},
	} {
		key := func(*http.Request) string { return name }
		transport := newTransport(t, rule, append(c.options, TransportKey(key))...)
		client := &http.Client{Transport: transport, Timeout: c.timeout}
		response, err := client.Get(server.URL)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		_ = response.Body.Close()
		before, start := calls.Load(), time.Now()
		body := &closable{Reader: strings.NewReader("body")}
		r, err := http.NewRequest(http.MethodPost, server.URL, body)
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.Do(r)
		var notSent *NotSentError
		if !errors.Is(err, ErrQuota) || !errors.As(err, &notSent) || notSent.RetryAfter < 59*time.Minute ||
			notSent.Host != Host(r) || !strings.Contains(err.Error(), "quota") {
			t.Errorf("%s: error %v", name, err)
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("%s: it took %v to say so", name, took)
		}
		if calls.Load() != before || !body.closed.Load() {
			t.Errorf("%s: sent: %v, body closed: %v", name, calls.Load() != before, body.closed.Load())
		}
	}
}

// A base transport that returns neither a response nor an error makes http.Client return an error. The transport does
// not panic instead.
func TestABaseThatReturnsNothing(t *testing.T) {
	base := roundTripper(func(*http.Request) (*http.Response, error) { return nil, nil })
	transport, err := NewTransport(base, newRule(t, newLimiter(t), "upstream", limit.PerHour(10)))
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: transport}
	if response, err := client.Get("http://upstream.example/"); err == nil || !strings.Contains(err.Error(), "nil *Response") {
		t.Errorf("%v, %v", response, err)
	}
}

// A request that cannot be charged is not sent.
func TestTransportSendsNothingUncharged(t *testing.T) {
	l := newLimiter(t)
	upstream, cost := &upstreamStub{status: 429, retryAfter: "30"}, int64(1)
	transport, err := NewTransport(upstream, newRule(t, l, "upstream", limit.PerHour(5)), TransportCost(func(*http.Request) int64 { return cost }))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	send := func(url string) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = transport.RoundTrip(r)
		return err
	}
	if err := send("http://a"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		want   error
		url    string
		change func()
	}{
		{limit.ErrInvalidCost, "http://b", func() { cost = 0 }},
		{limit.ErrCostExceedsLimit, "http://b", func() { cost = 6 }},
		{limit.ErrClosed, "http://b", func() { cost = 1; _ = l.Close() }},
		{context.Canceled, "http://a", cancel}, // host a asked for a pause
	} {
		c.change()
		if err := send(c.url); !errors.Is(err, c.want) || upstream.calls != 1 {
			t.Errorf("%v, %d calls; want %v", err, upstream.calls, c.want)
		}
	}
}

// closable is a body that records whether it was closed.
type closable struct {
	io.Reader
	closed atomic.Bool
}

func (c *closable) Close() error { c.closed.Store(true); return nil }

func TestTransportIsCancelledWhileItWaits(t *testing.T) {
	l := newLimiter(t)
	server, _ := upstreamServer(t, func(http.ResponseWriter, *http.Request) {})
	rule := newRule(t, l, "upstream", limit.PerHour(1))
	transport := newTransport(t, rule, MaxWait(2*time.Hour))
	ctx, cancel := context.WithCancel(context.Background())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err := transport.RoundTrip(r); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want context.Canceled", err)
	}
}

// A request whose context ends while it is granted is not sent, and its units are given back.
func TestARequestThatEndsWhileItIsGrantedIsNotSent(t *testing.T) {
	l := newLimiter(t)
	rule := newRule(t, l, "upstream", limit.PerHour(10))
	upstream := &upstreamStub{status: 200}
	var cancel context.CancelFunc
	stop, ok := inspect.Of(l).Watch(func(string, string, bool) { cancel() }) // the decision is made
	if !ok {
		t.Fatal("the limiter is watched already")
	}
	defer stop()
	for _, longest := range []time.Duration{0, time.Minute} {
		var ctx context.Context
		ctx, cancel = context.WithCancel(t.Context())
		defer cancel()
		transport, err := NewTransport(upstream, rule, TransportKey(Everyone), MaxWait(longest))
		if err != nil {
			t.Fatal(err)
		}
		body := &closable{Reader: strings.NewReader("body")}
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://upstream.example/", body)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := transport.RoundTrip(r); !errors.Is(err, context.Canceled) || upstream.calls != 0 || !body.closed.Load() {
			t.Errorf("error %v, %d calls, body closed: %v", err, upstream.calls, body.closed.Load())
		}
		if got := used(t, rule, "all"); got != 0 {
			t.Errorf("nothing was sent, %d are charged", got)
		}
	}
}

// An upstream that sent Retry-After is not called until then, and nothing is charged. Other hosts are
// still called.
func TestTransportHonoursRetryAfter(t *testing.T) {
	l := newLimiter(t)
	rule := newRule(t, l, "upstream", limit.PerHour(100))
	server, calls := upstreamServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/full" {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})
	other, otherCalls := upstreamServer(t, func(http.ResponseWriter, *http.Request) {})
	transport := newTransport(t, rule, TransportKey(Everyone))
	do := func(ctx context.Context, url string) (*http.Response, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := transport.RoundTrip(r)
		if err == nil {
			_ = response.Body.Close()
		}
		return response, err
	}
	ctx, start := context.Background(), time.Now()
	if response, err := do(ctx, server.URL+"/full"); err != nil || response.StatusCode != 429 {
		t.Fatalf("the upstream's answer goes to the caller: %v, %v", response, err)
	}
	if _, err := do(ctx, other.URL); err != nil || otherCalls.Load() != 1 {
		t.Errorf("another host: %v", err)
	}
	short, cancel := context.WithTimeout(ctx, 400*time.Millisecond)
	defer cancel()
	var notSent *NotSentError
	if _, err := do(short, server.URL); !errors.Is(err, ErrHeldBack) || !errors.As(err, &notSent) || notSent.RetryAfter > time.Second {
		t.Errorf("a request that cannot wait: %v", err)
	}
	if n := calls.Load(); n != 1 {
		t.Errorf("the upstream was called %d times", n)
	}
	if _, err := do(ctx, server.URL); err != nil {
		t.Error(err)
	}
	if waited := time.Since(start); waited < 900*time.Millisecond {
		t.Errorf("the host was called again after %v", waited)
	}
	if got := used(t, rule, "all"); got != 3 {
		t.Errorf("3 requests were sent, %d are charged", got)
	}
}

// upstreamStub answers every request at once.
type upstreamStub struct {
	status     int
	retryAfter string
	calls      int
	idleClosed bool
}

func (u *upstreamStub) RoundTrip(*http.Request) (*http.Response, error) {
	u.calls++
	return &http.Response{StatusCode: u.status, Header: http.Header{"Retry-After": {u.retryAfter}}, Body: http.NoBody}, nil
}

func (u *upstreamStub) CloseIdleConnections() { u.idleClosed = true }

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A host is paused if it answers 429 or 503 with a time to wait. MaxHold bounds the pause.
func TestWhichAnswersHoldAHost(t *testing.T) {
	l := newLimiter(t)
	rule := newRule(t, l, "upstream", limit.PerHour(1000))
	for name, c := range map[string]struct {
		status     int
		retryAfter string
		options    []TransportOption
		held       time.Duration
	}{
		"429":                      {429, "300", nil, 5 * time.Minute},
		"503":                      {503, "300", nil, 5 * time.Minute},
		"503 that does not say":    {503, "", nil, 0},
		"200":                      {200, "300", nil, 0},
		"500":                      {500, "300", nil, 0},
		"longer than the default":  {429, "3600", nil, DefaultMaxHold},
		"longer than it is set":    {429, "300", []TransportOption{MaxHold(2 * time.Minute)}, 2 * time.Minute},
		"as long as it is set":     {429, "3600", []TransportOption{MaxHold(time.Hour)}, time.Hour},
		"where no host may say so": {429, "300", []TransportOption{MaxHold(0)}, 0},
		"until now":                {429, "0", nil, 0},
	} {
		base := &upstreamStub{status: c.status, retryAfter: c.retryAfter}
		transport, err := NewTransport(base, rule, append(c.options, MaxWait(time.Second))...)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		r := httptest.NewRequest(http.MethodGet, "http://upstream.example/", nil)
		if response, err := transport.RoundTrip(r); err != nil || response.StatusCode != c.status {
			t.Fatalf("%s: %v", name, err)
		}
		_, err = transport.RoundTrip(r)
		var notSent *NotSentError
		switch held := errors.As(err, &notSent); {
		case held != (c.held > 0) || !held && (err != nil || base.calls != 2):
			t.Errorf("%s: error %v after %d calls", name, err, base.calls)
		case held && (!errors.Is(err, ErrHeldBack) || base.calls != 1 || notSent.Host != "upstream.example" ||
			notSent.RetryAfter > c.held || notSent.RetryAfter < c.held-10*time.Second):
			t.Errorf("%s: %+v after %d calls, want to be held for %v", name, notSent, base.calls, c.held)
		}
		if transport.CloseIdleConnections(); !base.idleClosed {
			t.Errorf("%s: the base transport's idle connections stay open", name)
		}
	}
}

// A request that waits for quota when its host asks for a pause gives its units back and waits again.
func TestAHoldDuringAWaitCostsNothing(t *testing.T) {
	l := newLimiter(t)
	rule := newRule(t, l, "upstream", limit.Per(2, 1500*time.Millisecond))
	server, calls := upstreamServer(t, func(http.ResponseWriter, *http.Request) {})
	transport := newTransport(t, rule, MaxWait(time.Minute))
	r, err := http.NewRequest(http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rule.AllowN(context.Background(), Host(r), 2); err != nil {
		t.Fatal(err)
	}
	sent := make(chan error)
	go func() {
		response, err := transport.RoundTrip(r)
		if err == nil {
			_ = response.Body.Close()
		}
		sent <- err
	}()
	redistest.Eventually(t, "the request to be denied at first", func() bool {
		_, denied := decisions(l, "upstream")
		return denied > 0
	})
	start := time.Now()
	transport.holds.hold(upstream{Host(r), Host(r)}, 1800*time.Millisecond)
	if err := <-sent; err != nil || calls.Load() != 1 {
		t.Fatalf("error %v after %d calls", err, calls.Load())
	}
	if waited := time.Since(start); waited < 1800*time.Millisecond {
		t.Errorf("the held host was called after %v", waited)
	}
	if got := used(t, rule, Host(r)); got != 1 {
		t.Errorf("one request was sent, %d are charged", got)
	}
	if n, _ := decisions(l, "upstream"); n != 3 {
		t.Errorf("%v decisions allowed, want the first, one given back, and the last", n)
	}
}

// If Redis is lost at that moment, the units stay charged, and the request still waits.
func TestAHoldDuringAWaitWhileRedisIsLost(t *testing.T) {
	client, hook := redistest.Shared(t).Client(t), &refundLoser{}
	client.AddHook(hook)
	rule := newRule(t, newLimiterOn(t, client, tiered.Prefix(redistest.Prefix())), "upstream", limit.PerHour(10))
	server, calls := upstreamServer(t, func(http.ResponseWriter, *http.Request) {})
	transport := newTransport(t, rule)
	r, err := http.NewRequest(http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	hook.charged = func() { transport.holds.hold(upstream{Host(r), Host(r)}, 30*time.Second) }
	hook.lost = func() {
		transport.holds.mu.Lock()
		defer transport.holds.mu.Unlock()
		clear(transport.holds.until) // the pause is over
	}
	response, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatalf("after %d trips: %v", hook.trips, err)
	}
	_ = response.Body.Close()
	if hook.trips != 3 || calls.Load() != 1 {
		t.Errorf("%d trips, %d calls; want a charge, a refund that is lost, and another charge", hook.trips, calls.Load())
	}
	if got := used(t, rule, Host(r)); got != 2 {
		t.Errorf("%d units are charged", got)
	}
}

// refundLoser calls charged after the first trip for the rule "upstream", and fails the second trip.
type refundLoser struct {
	charged, lost func()
	trips         int
}

func (h *refundLoser) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *refundLoser) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !strings.Contains(fmt.Sprint(cmd.Args()...), ":upstream") {
			return next(ctx, cmd) // a heartbeat
		}
		switch h.trips++; h.trips {
		case 1:
			defer h.charged()
		case 2:
			h.lost()
			cmd.SetErr(io.ErrUnexpectedEOF)
			return io.ErrUnexpectedEOF
		}
		return next(ctx, cmd)
	}
}

func (h *refundLoser) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// decisions returns the number of decisions that a rule has made, by outcome.
func decisions(l *tiered.Limiter, rule string) (allowed, denied uint64) {
	for _, r := range l.Stats().Rules {
		if r.Name == rule {
			for _, tier := range r.Decisions {
				allowed += tier.Allowed
				denied += tier.Denied
			}
		}
	}
	return allowed, denied
}

func TestHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHolds(time.Minute)
		a, b, c := upstream{"a", "key"}, upstream{"b", "key"}, upstream{"c", "key"}
		h.hold(a, 10*time.Second)
		h.hold(a, time.Second) // from an older answer
		h.hold(b, time.Hour)
		h.hold(c, -time.Second)
		if a, b, c := h.left(a), h.left(b), h.left(c); a != 10*time.Second || b != time.Minute || c != 0 {
			t.Errorf("held for %v, %v and %v", a, b, c)
		}
		if other, joined := h.left(upstream{"a", "other"}), h.left(upstream{"ak", "ey"}); other != 0 || joined != 0 {
			t.Errorf("another key is held for %v, and one that reads the same together with its host for %v", other, joined)
		}
		time.Sleep(10 * time.Second)
		if a, b := h.left(a), h.left(b); a != 0 || b != 50*time.Second {
			t.Errorf("10 s later: %v and %v", a, b)
		}
		before := heap()
		for i := range 3 * maxHolds {
			h.hold(upstream{"a", strings.Repeat("x", limit.MaxKey-i)}, time.Duration(1+i)*time.Millisecond)
		}
		if len(h.until) > maxHolds {
			t.Errorf("%d upstreams are remembered", len(h.until))
		}
		if grown := heap() - before; grown > 1<<20 { // the keys have 64 MB in total
			t.Errorf("the heap has grown by %d bytes", grown)
		}
		if h.left(b) == 0 {
			t.Error("the longest hold was forgotten first")
		}
	})
}

// If there are more holds than can be remembered, holds that are over are forgotten. If none is over,
// the hold that ends first is forgotten.
func TestWhichHoldsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHolds(time.Hour)
		held := func(i int) bool { return h.left(upstream{"a", fmt.Sprint(i)}) > 0 }
		for i := range maxHolds {
			h.hold(upstream{"a", fmt.Sprint(i)}, time.Duration(i/2*2+2)*time.Second)
		}
		h.hold(upstream{"a", "5"}, time.Minute) // needs no room, because it has a place already
		h.hold(upstream{"b", "k"}, 0)           // is over at once
		for i := range maxHolds {
			if !held(i) {
				t.Fatalf("hold %d of %d is forgotten", i, maxHolds)
			}
		}
		h.hold(upstream{"b", "k"}, time.Second)
		if left := h.left(upstream{"b", "k"}); left != time.Second || held(0) == held(1) || !held(2) {
			t.Errorf("the newest is held for %v, the two that end first: %v and %v, the next one: %v", left, held(0), held(1), held(2))
		}
		time.Sleep(4 * time.Second) // then four holds are over, and nobody has asked for them
		h.hold(upstream{"c", "k"}, time.Second)
		if want := maxHolds - 4 + 1; len(h.until) != want || !held(4) {
			t.Errorf("%d are remembered, want %d; the first that is not over: %v", len(h.until), want, held(4))
		}
	})
}

// A host's answer to one tenant does not hold up any other tenant. It holds up that tenant under every
// spelling of the host's name.
func TestAHoldIsForOneKey(t *testing.T) {
	l := newLimiter(t)
	rule := newRule(t, l, "upstream", limit.PerHour(100))
	server, calls := upstreamServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Tenant") == "greedy" {
			w.Header().Set("Retry-After", "600")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})
	port := server.Listener.Addr().(*net.TCPAddr).Port
	transport := newTransport(t, rule, TransportKey(Header("Tenant")), MaxWait(time.Second))
	do := func(host, tenant string) error {
		r, err := http.NewRequest(http.MethodGet, fmt.Sprintf("http://%s:%d/", host, port), nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Tenant", tenant)
		response, err := transport.RoundTrip(r)
		if err == nil {
			_ = response.Body.Close()
		}
		return err
	}
	if err := do("localhost", "greedy"); err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"localhost", "LOCALHOST", "localhost."} {
		if err := do(host, "greedy"); !errors.Is(err, ErrHeldBack) {
			t.Errorf("%s, the tenant that was told to wait: %v", host, err)
		}
		if err := do(host, "modest"); errors.Is(err, ErrHeldBack) {
			t.Errorf("%s, another tenant: %v", host, err)
		}
	}
	if err := do("localhost", "modest"); err != nil || calls.Load() < 3 {
		t.Errorf("another tenant: %v after %d calls", err, calls.Load())
	}
}

func TestRetryAfterHeader(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"0": 0, "120": 2 * time.Minute, " 7 ": 7 * time.Second,
		"99999999999999999999": limit.MaxWindow, "31622401": limit.MaxWindow,
		"Sat, 21 Nov 2026 12:00:30 GMT": 30 * time.Second,
		"Sat, 21 Nov 2026 11:00:00 GMT": -time.Hour,
	} {
		if got, ok := retryAfter(http.Header{"Retry-After": {text}}, now); !ok || got != want {
			t.Errorf("%q: %v, %v, want %v", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "soon", "-1", "1.5", "1 2"} {
		if got, ok := retryAfter(http.Header{"Retry-After": {text}}, now); ok {
			t.Errorf("%q was read as %v", text, got)
		}
	}
	// The upstream's clock is off by an hour, but the wait is right.
	h := http.Header{"Retry-After": {"Sat, 21 Nov 2026 13:00:30 GMT"}, "Date": {"Sat, 21 Nov 2026 13:00:00 GMT"}}
	if got, _ := retryAfter(h, now); got != 30*time.Second {
		t.Errorf("by the upstream's own clock: %v", got)
	}
}

func FuzzRetryAfter(f *testing.F) {
	f.Add("120", "")
	f.Add("Sat, 21 Nov 2026 12:00:30 GMT", "Sat, 21 Nov 2026 12:00:00 GMT")
	f.Fuzz(func(t *testing.T, text, date string) {
		after, ok := retryAfter(http.Header{"Retry-After": {text}, "Date": {date}}, time.Now())
		h, a := newHolds(time.Minute), upstream{"a", "key"}
		if h.hold(a, after); h.left(a) > time.Minute || !ok && after != 0 {
			t.Errorf("%q, %q: %v, held for %v", text, date, after, h.left(a))
		}
	})
}

func TestHost(t *testing.T) {
	for url, want := range map[string]string{
		"https://API.example/a": "api.example", "https://api.example:443": "api.example",
		"http://api.example:80/": "api.example", "http://api.example:443/": "api.example:443",
		"https://api.example:80/": "api.example:80", "https://api.example:8443/": "api.example:8443",
		"https://api.example.:443/": "api.example", "https://api.example:/": "api.example", "http://api.example:080/": "api.example",
		"http://[::1]:80/": "[::1]", "http://[0:0::0001]:8080/": "[::1]:8080", "http://[FE80::1%25eth0]/": "[fe80::1%eth0]",
		"http://127.0.0.1:8080/": "127.0.0.1:8080",
	} {
		r, err := http.NewRequest(http.MethodGet, url, bytes.NewReader(nil))
		if err != nil {
			t.Fatal(err)
		}
		if got := Host(r); got != want {
			t.Errorf("%s: host %q, want %q", url, got, want)
		}
	}
}

func TestTransportOptionsAreChecked(t *testing.T) {
	l := newLimiter(t)
	rule := newRule(t, l, "upstream", limit.PerHour(1))
	for name, o := range map[string]TransportOption{
		"wait": MaxWait(-1), "hold": MaxHold(-1), "key": TransportKey(nil), "cost": TransportCost(nil),
	} {
		if _, err := NewTransport(nil, rule, o); !errors.Is(err, limit.ErrInvalidOption) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if transport, err := NewTransport(roundTripper(nil), rule); err != nil {
		t.Error(err)
	} else {
		transport.CloseIdleConnections() // this base transport has none
	}
	if _, err := NewTransport(nil, nil); !errors.Is(err, limit.ErrInvalidOption) {
		t.Errorf("nil rule: error %v", err)
	}
	if _, err := NewTransport(nil, new(tiered.Rule)); !errors.Is(err, limit.ErrInvalidOption) {
		t.Errorf("a rule that no limiter made: error %v", err)
	}
	if _, err := NewTransport(nil, newRule(t, l, "in-flight", limit.Concurrent(1))); !errors.Is(err, limit.ErrInvalidOption) {
		t.Errorf("a rule of what is in flight: error %v", err)
	}
}
