package serve

import (
	"strings"
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

const debts = `
domain: d
descriptors:
  - {key: log, rate_limit: {unit: hour, requests_per_unit: 3, algorithm: sliding-log, debt: true}}
  - {key: counter, rate_limit: {unit: hour, requests_per_unit: 3, algorithm: "sliding-counter:k=60,strict", debt: true}}
  - {key: gcra, rate_limit: {unit: hour, requests_per_unit: 3, algorithm: gcra, burst: 3, debt: true}}
  - {key: fixed, rate_limit: {unit: year, requests_per_unit: 3, algorithm: fixed-window, debt: true}}
  - {key: need, rate_limit: {unit: hour, requests_per_unit: 3, need: {above: 0}, debt: true}}
  - {key: leased, rate_limit: {unit: hour, requests_per_unit: 3, algorithm: sliding-log, lease: 50, debt: true}}
  - {key: zero, rate_limit: {unit: hour, requests_per_unit: 0, algorithm: sliding-log, debt: true}}
  - {key: warn, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 3, algorithm: sliding-log, debt: true}}
  - {key: denies, rate_limit: {unit: hour, requests_per_unit: 3, algorithm: sliding-log, outage: deny, debt: true}}
  - {key: plain, rate_limit: {unit: hour, requests_per_unit: 3, algorithm: sliding-log}}
`

// costing returns a request whose descriptors all cost that many hits.
func costing(hits uint64, text string) *ratelimitv3.RateLimitRequest {
	request := asking(text)
	for _, d := range request.GetDescriptors() {
		d.HitsAddend = wrapperspb.UInt64(hits)
	}
	return request
}

// A limit with debt charges costs that do not fit, and denies requests that only look while no unit is free.
func TestDebt(t *testing.T) {
	server := start(t, debts)
	if _, configured := get(t, server, "debug", "/rlconfig"); strings.Count(configured, ", debt: true, outage: ") != 8 {
		t.Errorf("limits with debt are not shown as such:\n%s", configured)
	}
	client := server.client(t)
	for _, key := range []string{"log", "counter", "gcra", "fixed", "need"} {
		expect(t, client, costing(0, "d "+key+"=a"), "OK: OK 3")
		expect(t, client, costing(2, "d "+key+"=a"), "OK: OK 1")
		expect(t, client, costing(0, "d "+key+"=a"), "OK: OK 1")
		expect(t, client, costing(2, "d "+key+"=a"), "OVER: OVER 0")
		look := expect(t, client, costing(0, "d "+key+"=a"), "OVER: OVER 0")
		if s := look.GetStatuses()[0].GetDurationUntilReset().GetSeconds(); s < 1199 {
			t.Errorf("%s: a unit in %d s, but more than the limit is charged", key, s)
		}
		expect(t, client, costing(1000, "d "+key+"=b"), "OVER: OVER 0") // more than the limit
		expect(t, client, costing(0, "d "+key+"=b"), "OVER: OVER 0")
	}
	expect(t, client, costing(7, "d log=c counter=c gcra=c"), "OVER: OVER 0, OVER 0, OVER 0")
	expect(t, client, costing(0, "d log=c counter=c gcra=c"), "OVER: OVER 0, OVER 0, OVER 0")
	expect(t, client, costing(1, "d leased=a"), "OK: OK 2")
	expect(t, client, costing(3, "d leased=a"), "OVER: OVER 0")
	expect(t, client, costing(1, "d leased=a"), "OVER: OVER 0")
	expect(t, client, costing(0, "d zero=a"), "OVER: OVER 0")
	expect(t, client, costing(1, "d zero=a"), "OVER: OVER 0")
	expect(t, client, costing(4, "d warn=a"), "OK: OK 0")
	expect(t, client, costing(0, "d warn=a"), "OK: OK 0")

	// Units that are given back pay a debt off.
	expect(t, client, costing(4, "d fixed=g"), "OVER: OVER 0")
	back := costing(2, "d fixed=g")
	back.Descriptors[0].IsNegativeHits = true
	expect(t, client, back, "OK: OK 1")
	expect(t, client, costing(0, "d fixed=g"), "OK: OK 1")
}

// A limit with debt is charged by itself, and if it denies, the limits that are charged all or none are not charged.
func TestDebtBesideOtherLimits(t *testing.T) {
	client := start(t, debts).client(t)
	expect(t, client, costing(1, "d log=a plain=a"), "OK: OK 2, OK 2")
	mixed := costing(1, "d log=a plain=a")
	mixed.Descriptors[0].HitsAddend = wrapperspb.UInt64(3)
	expect(t, client, mixed, "OVER: OVER 0, OK 2")
	mixed.Descriptors[0].HitsAddend = wrapperspb.UInt64(0)
	expect(t, client, mixed, "OVER: OVER 0, OK 2")
	expect(t, client, costing(1, "d plain=a"), "OK: OK 1")
	mixed = costing(4, "d log=b plain=b")
	mixed.Descriptors[0].HitsAddend = wrapperspb.UInt64(1)
	expect(t, client, mixed, "OVER: OK 2, OVER 0")
	expect(t, client, costing(0, "d log=b plain=b"), "OK: OK 2, OK 3")
	// A limit without debt does not charge what does not fit, and does not deny requests that only look.
	expect(t, client, costing(2, "d log=d plain=a"), "OVER: OK 1, OVER 0")
	expect(t, client, costing(1, "d plain=a"), "OK: OK 0")
	expect(t, client, costing(0, "d plain=a"), "OK: OK 0")
}

// Costs that are denied while Redis is lost are charged once it is back.
func TestDebtWithoutRedis(t *testing.T) {
	redis := redistest.Start(t)
	s := startOn(t, redis.Addr(), configDir(t, debts), "TIERLIMIT_DEADLINE=250ms", "TIERLIMIT_FLEET_SIZE=1", "LIMIT_RESPONSE_HEADERS_ENABLED=true")
	client := s.client(t)
	expect(t, client, costing(0, "d log=a denies=a"), "OK: OK 3, OK 3")
	redis.Pause()
	redistest.Eventually(t, "Redis counts as lost", func() bool {
		ask(t, client, costing(0, "d log=other"))
		return s.limiters.All.Degraded()
	})
	expect(t, client, costing(0, "d log=a"), "OK: OK 3")
	expect(t, client, costing(0, "d denies=a"), "OVER: OVER 0")
	expect(t, client, costing(9, "d log=a"), "OVER: OVER 0")
	expect(t, client, costing(9, "d denies=a"), "OVER: OVER 0")
	redis.Resume()
	redistest.Eventually(t, "Redis decides again", func() bool { return !s.limiters.All.Degraded() })
	for _, key := range []string{"log", "denies"} {
		redistest.Eventually(t, "the cost is charged in Redis", func() bool {
			response := ask(t, client, costing(0, "d "+key+"=a")).response
			return response.GetOverallCode() == ratelimitv3.RateLimitResponse_OVER_LIMIT && len(response.GetResponseHeadersToAdd()) == 3
		})
	}
}
