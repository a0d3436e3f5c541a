package serve

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

const sliding = `
domain: d
descriptors:
  - {key: log, rate_limit: {unit: hour, requests_per_unit: 3, algorithm: sliding-log}}
  - {key: counter, rate_limit: {unit: hour, requests_per_unit: 3, algorithm: "sliding-counter:k=60,strict"}}
  - {key: gcra, rate_limit: {unit: hour, requests_per_unit: 3, algorithm: gcra, burst: 2}}
  - {key: fixed, rate_limit: {unit: year, requests_per_unit: 3, algorithm: fixed-window}}
  - {key: need, rate_limit: {unit: hour, requests_per_unit: 3, need: {above: 0}}}
  - {key: leased, rate_limit: {unit: hour, requests_per_unit: 1000, algorithm: sliding-log, lease: 20}}
  - {key: odd, rate_limit: {window: 90m, requests_per_unit: 3, algorithm: sliding-log}}
  - {key: zero, rate_limit: {unit: hour, requests_per_unit: 0, algorithm: gcra}}
  - {key: warn, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1, algorithm: sliding-log}}
  - {key: quota, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 1, algorithm: sliding-log}}
  - {key: counted, rate_limit: {unit: year, requests_per_unit: 3}}
`

// If a limit names an algorithm, denied requests cost nothing, and a smaller request may still be allowed.
func TestAlgorithms(t *testing.T) {
	client := start(t, sliding).client(t)
	for _, key := range []string{"log", "counter", "fixed", "need", "odd"} {
		one, two := asking("d "+key+"=a"), asking("d "+key+"=a")
		two.HitsAddend = 2
		look := asking("d " + key + "=a")
		look.Descriptors[0].HitsAddend = wrapperspb.UInt64(0)
		expect(t, client, two, "OK: OK 1")
		expect(t, client, two, "OVER: OVER 0")
		expect(t, client, look, "OK: OK 1")
		expect(t, client, one, "OK: OK 0")
		expect(t, client, one, "OVER: OVER 0")
		expect(t, client, look, "OK: OK 0")
		many := asking("d " + key + "=b")
		many.HitsAddend = 1000
		expect(t, client, many, "OVER: OVER 0") // more than the limit
	}
	expect(t, client, asking("d gcra=a"), "OK: OK 1")
	expect(t, client, asking("d gcra=a"), "OK: OK 0")
	response := expect(t, client, asking("d gcra=a"), "OVER: OVER 0")
	if s := response.GetStatuses()[0].GetDurationUntilReset().GetSeconds(); s < 1190 || s > 1200 {
		t.Errorf("again in %d s, want 1200", s)
	}
	expect(t, client, asking("d zero=a"), "OVER: OVER 0")
	if l := response.GetStatuses()[0].GetCurrentLimit(); l.GetRequestsPerUnit() != 3 {
		t.Errorf("%v", l)
	}
}

// The limits of a request are charged all or none, unless the settings say to charge separately. Limits in shadow
// mode, quotas, and limits that count denied requests do not take part.
func TestAllOrNone(t *testing.T) {
	for _, separately := range []bool{false, true} {
		t.Run(fmt.Sprint("separately ", separately), func(t *testing.T) {
			client := start(t, sliding, fmt.Sprint("TIERLIMIT_CHARGE_SEPARATELY=", separately)).client(t)
			expect(t, client, asking("d log=a odd=a"), "OK: OK 2, OK 2")
			expect(t, client, asking("d log=a"), "OK: OK 1")
			expect(t, client, asking("d log=a"), "OK: OK 0")
			if separately {
				expect(t, client, asking("d log=a odd=a"), "OVER: OVER 0, OK 1")
				expect(t, client, asking("d odd=a"), "OK: OK 0")
				return
			}
			expect(t, client, asking("d log=a odd=a"), "OVER: OVER 0, OK 2")
			expect(t, client, asking("d odd=a"), "OK: OK 1")
			// A limit that counts denied requests is asked first, and is charged in any case.
			expect(t, client, asking("d counted=a odd=b"), "OK: OK 2, OK 2")
			for range 3 {
				client.ShouldRateLimit(t.Context(), asking("d counted=a"))
			}
			expect(t, client, asking("d counted=a odd=b"), "OVER: OVER 0, OK 2")
			expect(t, client, asking("d counted=a log=a"), "OVER: OVER 0, OVER 0")
			two := asking("d counted=a odd=b odd=c")
			two.Descriptors[1].HitsAddend, two.Descriptors[2].HitsAddend = wrapperspb.UInt64(3), wrapperspb.UInt64(3)
			expect(t, client, two, "OVER: OVER 0, OVER 0, OK 3")
			// Such a limit also denies a request that only looks or gives back hits, if the count is above the limit.
			look := asking("d counted=a odd=e")
			look.Descriptors[0].HitsAddend = wrapperspb.UInt64(0)
			expect(t, client, look, "OVER: OVER 0, OK 3")
			look.Descriptors[0].HitsAddend, look.Descriptors[0].IsNegativeHits = wrapperspb.UInt64(1), true
			expect(t, client, look, "OVER: OVER 0, OK 3")
			expect(t, client, asking("d odd=e"), "OK: OK 2")
			expect(t, client, asking("d counted=b log=a"), "OVER: OK 2, OVER 0")
			expect(t, client, asking("d counted=b log=b"), "OK: OK 1, OK 2")
			// Limits in shadow mode and quotas do not hold the others back.
			expect(t, client, asking("d warn=a log=c"), "OK: OK 0, OK 2")
			expect(t, client, asking("d warn=a log=c"), "OK: OK 0, OK 1")
			expect(t, client, asking("d quota=a log=c"), "OK: OK 0, OK 0")
			// A quota that counts only what is allowed denies a request, too.
			expect(t, client, asking("d quota=a odd=q"), "OVER: OVER 0, OK 3")
			// The same count twice in a request is charged one after the other.
			expect(t, client, asking("d log=d log=d"), "OK: OK 2, OK 1")
		})
	}
}

// Where all limits are in shadow mode, or are quotas, none holds others back.
func TestModesOfAllHoldNothingBack(t *testing.T) {
	for _, mode := range []string{"SHADOW_MODE=true", "QUOTA_MODE=true"} {
		client := start(t, sliding, mode).client(t)
		expect(t, client, asking("d gcra=a"), "OK: OK 1")
		expect(t, client, asking("d gcra=a"), "OK: OK 0")
		expect(t, client, asking("d gcra=a odd=a"), "OK: OVER 0, OK 2")
		expect(t, client, asking("d odd=a"), "OK: OK 1")
	}
}

// If a remembered denial ends a request, nothing is known about its other limits. Their statuses show no limit,
// because Envoy takes its headers from the limit with the least remaining.
func TestNothingIsSaidOfLimitsThatWereNotAsked(t *testing.T) {
	client := start(t, sliding, "LIMIT_RESPONSE_HEADERS_ENABLED=true").client(t)
	for range 3 {
		ask(t, client, asking("d log=a"))
	}
	request := asking("d odd=a log=a")
	redistest.Eventually(t, "the denial is remembered", func() bool {
		response := ask(t, client, request).response
		odd, log := response.GetStatuses()[0], response.GetStatuses()[1]
		if log.GetCode() != ratelimitv3.RateLimitResponse_OVER_LIMIT || log.GetDurationUntilReset().GetSeconds() == 0 || odd.GetCode() != ratelimitv3.RateLimitResponse_OK {
			t.Errorf("%v", response)
		}
		if odd.GetCurrentLimit() != nil && (odd.GetLimitRemaining() == 0 || odd.GetDurationUntilReset() == nil) {
			t.Errorf("%v", response)
		}
		return odd.GetCurrentLimit() == nil && odd.GetLimitRemaining() == 0 && odd.GetDurationUntilReset() == nil
	})
}

// Leased units are spent without asking Redis. No more than the limit is granted.
func TestLease(t *testing.T) {
	server := start(t, sliding)
	client := server.client(t)
	over := 0
	for range 1300 {
		if !strings.HasPrefix(short(ask(t, client, asking("d leased=a"))), "OK") {
			over++
		}
	}
	if over != 300 {
		t.Errorf("%d of 1300 were over a limit of 1000", over)
	}
	_, metrics := get(t, server, "metrics", "/metrics")
	if !regexp.MustCompile(`tierlimit_decisions_total\{outcome="allowed",rule="1h0m0s",tier="lease"\} [1-9]`).MatchString(metrics) {
		t.Error("no decision was made by a lease")
	}
}

// A sliding window lets nothing extra through around a boundary. Windows aligned to the clock, as in
// envoyproxy/ratelimit, let twice the limit through there.
func TestWindowsThatSlide(t *testing.T) {
	t.Parallel()
	client := start(t, `
domain: d
descriptors:
  - {key: slide, rate_limit: {unit: second, requests_per_unit: 20, algorithm: sliding-log}}
`).client(t)
	var asked, answered []time.Time // of the granted requests
	for began := time.Now(); len(asked) < 50 && time.Since(began) < 30*time.Second; {
		before := time.Now()
		if a := ask(t, client, asking("d slide=a")); short(a)[:2] == "OK" {
			asked, answered = append(asked, before), append(answered, time.Now())
		}
	}
	if len(asked) < 50 {
		t.Errorf("%d were granted, want 50", len(asked))
	}
	for i := 20; i < len(asked); i++ {
		// Each request was charged between its two times.
		if apart := answered[i].Sub(asked[i-20]); apart < 990*time.Millisecond {
			t.Errorf("21 requests within %v", apart)
		}
	}
}

// A Redis of their own can hold the limits per second.
func TestPerSecondRedis(t *testing.T) {
	other := redistest.Start(t)
	server := start(t, `
domain: d
descriptors:
  - {key: s, rate_limit: {unit: second, requests_per_unit: 1000}}
  - {key: m, rate_limit: {unit: year, requests_per_unit: 1000}}
  - {key: sl, rate_limit: {unit: second, requests_per_unit: 1000, algorithm: sliding-log}}
  - {key: ml, rate_limit: {unit: hour, requests_per_unit: 1000, algorithm: sliding-log}}
`, "REDIS_PERSECOND=true", "REDIS_PERSECOND_SOCKET_TYPE=tcp", "REDIS_PERSECOND_URL="+other.Addr())
	client := server.client(t)
	expect(t, client, asking("d s=a m=a sl=a ml=a"), "OK: OK 999, OK 999, OK 999, OK 999")
	var keys []string
	for range 5 { // a key may expire before it is seen, at the end of a second
		var err error
		if keys, err = other.Client(t).Keys(t.Context(), "*1s").Result(); err != nil {
			t.Fatal(err)
		}
		if len(keys) == 2 {
			break
		}
		if _, err := client.ShouldRateLimit(t.Context(), asking("d s=a m=a sl=a ml=a")); err != nil {
			t.Fatal(err)
		}
	}
	if len(keys) != 2 {
		t.Errorf("%q", keys)
	}
	if keys, _ := other.Client(t).Keys(t.Context(), "*h*s").Result(); len(keys) != 0 {
		t.Errorf("%q", keys)
	}
}
