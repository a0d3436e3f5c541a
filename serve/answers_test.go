package serve

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/serve/internal/config"
	"github.com/tierlimit/tierlimit/serve/internal/stats"
)

// start starts a service on the shared Redis, with one configuration file.
func start(t testing.TB, config string, settings ...string) *Server {
	t.Helper()
	settings = append([]string{"CACHE_KEY_PREFIX=" + redistest.Prefix()}, settings...)
	return startOn(t, redistest.Shared(t).Addr(), configDir(t, config), settings...)
}

// asking builds a request from "domain key=value,key=value key=value". Each word is a descriptor.
func asking(text string) *ratelimitv3.RateLimitRequest {
	words := strings.Fields(text)
	request := &ratelimitv3.RateLimitRequest{Domain: words[0]}
	for _, word := range words[1:] {
		d := &commonv3.RateLimitDescriptor{}
		for entry := range strings.SplitSeq(word, ",") {
			key, value, _ := strings.Cut(entry, "=")
			d.Entries = append(d.Entries, &commonv3.RateLimitDescriptor_Entry{Key: key, Value: value})
		}
		request.Descriptors = append(request.Descriptors, d)
	}
	return request
}

// short returns an answer's codes and remaining units: "OK: OK 3, OVER 0".
func short(a answer) string {
	if a.err != nil {
		return status.Code(a.err).String()
	}
	code := func(c ratelimitv3.RateLimitResponse_Code) string {
		return strings.TrimSuffix(c.String(), "_LIMIT")
	}
	var parts []string
	for _, s := range a.response.GetStatuses() {
		part := code(s.GetCode())
		if s.GetCurrentLimit() != nil {
			part += fmt.Sprintf(" %d", s.GetLimitRemaining())
		}
		parts = append(parts, part)
	}
	return code(a.response.GetOverallCode()) + ": " + strings.Join(parts, ", ")
}

// expect sends a request and compares the answer with the wanted one.
func expect(t *testing.T, client ratelimitv3.RateLimitServiceClient, request *ratelimitv3.RateLimitRequest, want string) *ratelimitv3.RateLimitResponse {
	t.Helper()
	a := ask(t, client, request)
	if got := short(a); got != want {
		t.Errorf("%s:\n%s, want %s", protojson.Format(request), got, want)
	}
	return a.response
}

const shop = `
domain: shop
descriptors:
  - {key: user, rate_limit: {unit: year, requests_per_unit: 5}}
  - {key: zero, rate_limit: {unit: year, requests_per_unit: 0}}
  - {key: many, rate_limit: {unit: year, requests_per_unit: 100}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: quota, quota_mode: true, rate_limit: {unit: year, requests_per_unit: 1}, metadata: {pool: {a: 1}}}
  - {key: quota2, quota_mode: true, rate_limit: {unit: year, requests_per_unit: 2}, metadata: {pool: {b: two}, more: [true]}}
  - {key: base, rate_limit: {name: base, unit: year, requests_per_unit: 1}}
  - {key: better, rate_limit: {unit: year, requests_per_unit: 10, replaces: [{name: base}, {name: other}]}}
  - {key: file, value: "dir/*", share_threshold: true, rate_limit: {unit: year, requests_per_unit: 2}}
  - {key: detail, detailed_metric: true, rate_limit: {unit: year, requests_per_unit: 5}, metadata: {kept: yes}}
`

// Hits are counted as in envoyproxy/ratelimit. Denied hits count too, and so do the hits on the other limits of a
// denied request. A descriptor with 0 hits only looks.
func TestHits(t *testing.T) {
	client := start(t, shop).client(t)
	expect(t, client, asking("shop user=a"), "OK: OK 4")
	request := asking("shop user=a")
	request.HitsAddend = 3
	expect(t, client, request, "OK: OK 1")
	look := asking("shop user=a")
	look.Descriptors[0].HitsAddend = wrapperspb.UInt64(0)
	expect(t, client, look, "OK: OK 1")
	expect(t, client, request, "OVER: OVER 0") // its hits are counted
	expect(t, client, asking("shop user=a"), "OVER: OVER 0")
	expect(t, client, look, "OVER: OVER 0")
	expect(t, client, asking("shop user=a user=b many=x"), "OVER: OVER 0, OK 4, OK 99")
	expect(t, client, asking("shop user=b many=x nothing=y"), "OK: OK 3, OK 98, OK")
	expect(t, client, asking("shop user=c user=c user=c"), "OK: OK 4, OK 3, OK 2")
	own := asking("shop user=d user=e")
	own.HitsAddend = 2
	own.Descriptors[1].HitsAddend = wrapperspb.UInt64(1 << 63)
	expect(t, client, own, "OVER: OK 3, OVER 0")
	zero := asking("shop zero=a")
	zero.Descriptors[0].HitsAddend = wrapperspb.UInt64(0)
	expect(t, client, zero, "OK: OK 0")
	expect(t, client, asking("shop zero=a"), "OVER: OVER 0")
	expect(t, client, zero, "OVER: OVER 0")
}

// With the cache of denials, a descriptor that only looks at a limit whose units are just used up is not over it, as often
// as it looks, and the next hits are counted. Those are denied, and so are looks from then on.
func TestLooksBesideTheCacheOfDenials(t *testing.T) {
	redis, root, prefix := redistest.Shared(t).Addr(), configDir(t, shop), "CACHE_KEY_PREFIX="+redistest.Prefix()
	client := startOn(t, redis, root, prefix, "LOCAL_CACHE_SIZE_IN_BYTES=1000000").client(t)
	all, look := asking("shop user=a"), asking("shop user=a")
	all.HitsAddend, look.Descriptors[0].HitsAddend = 5, wrapperspb.UInt64(0)
	expect(t, client, all, "OK: OK 0")
	for range 3 {
		expect(t, client, look, "OK: OK 0")
	}
	expect(t, client, asking("shop user=a"), "OVER: OVER 0")
	expect(t, client, look, "OVER: OVER 0")
	expect(t, startOn(t, redis, root, prefix).client(t), look, "OVER: OVER 0") // by Redis's count: this one has no memory of it
}

// Negative hits are given back, and the count stops at 0.
func TestNegativeHits(t *testing.T) {
	client := start(t, shop+`
  - {key: log, rate_limit: {unit: hour, requests_per_unit: 5, algorithm: sliding-log}}
  - {key: gcra, rate_limit: {unit: hour, requests_per_unit: 5, algorithm: gcra, burst: 5}}
`).client(t)
	back := func(word string, hits uint64) *ratelimitv3.RateLimitRequest {
		request := asking("shop " + word)
		request.Descriptors[0].HitsAddend, request.Descriptors[0].IsNegativeHits = wrapperspb.UInt64(hits), true
		return request
	}
	for _, key := range []string{"user=a", "log=a"} {
		expect(t, client, asking("shop "+key), "OK: OK 4")
		expect(t, client, asking("shop "+key), "OK: OK 3")
		expect(t, client, back(key, 1), "OK: OK 4")
		expect(t, client, back(key, 100), "OK: OK 5")
		expect(t, client, back(key, 1), "OK: OK 5")
		expect(t, client, asking("shop "+key), "OK: OK 4")
	}
	several := asking("shop user=b log=b many=b")
	expect(t, client, several, "OK: OK 4, OK 4, OK 99")
	for _, d := range several.Descriptors {
		d.IsNegativeHits = true
	}
	expect(t, client, several, "OK: OK 5, OK 5, OK 100")
	expect(t, client, asking("shop gcra=a"), "OK: OK 4")
	expect(t, client, back("gcra=a", 1), "OK: OK 4") // nothing tells which charge the hits belong to
}

// A descriptor's own limit takes precedence over the configured one, and shares its count.
func TestOwnLimit(t *testing.T) {
	client := start(t, shop).client(t)
	own := func(word string, quota uint32, unit typev3.RateLimitUnit) *ratelimitv3.RateLimitRequest {
		request := asking("shop " + word)
		request.Descriptors[0].Limit = &commonv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: quota, Unit: unit}
		return request
	}
	expect(t, client, own("user=a", 2, typev3.RateLimitUnit_YEAR), "OK: OK 1")
	response := expect(t, client, own("user=a", 3, typev3.RateLimitUnit_YEAR), "OK: OK 1")
	if l := response.GetStatuses()[0].GetCurrentLimit(); l.GetRequestsPerUnit() != 3 || l.GetUnit() != ratelimitv3.RateLimitResponse_RateLimit_YEAR {
		t.Errorf("%v", l)
	}
	expect(t, client, asking("shop user=a"), "OK: OK 2")
	expect(t, client, own("user=a", 2, typev3.RateLimitUnit_MONTH), "OK: OK 1")
	expect(t, client, own("nobody=a", 1, typev3.RateLimitUnit_DAY), "OK: OK 0")
	expect(t, client, own("nobody=a", 1, typev3.RateLimitUnit_DAY), "OVER: OVER 0")
	expect(t, client, own("shadow=a", 0, typev3.RateLimitUnit_DAY), "OVER: OVER 0")
	// share_threshold applies under the configured limit only.
	expect(t, client, own("file=dir/a", 2, typev3.RateLimitUnit_YEAR), "OK: OK 1")
	expect(t, client, own("file=dir/b", 2, typev3.RateLimitUnit_YEAR), "OK: OK 1")
	unknown := own("user=a", 2, typev3.RateLimitUnit_DAY)
	unknown.Domain = "unknown"
	expect(t, client, unknown, "OK: OK")
	long := own("user=a", 2, typev3.RateLimitUnit_DAY)
	long.Descriptors[0].Limit.UnitMultiplier = wrapperspb.UInt32(2)
	response = expect(t, client, long, "OK: OK 1")
	if s := response.GetStatuses()[0]; s.GetCurrentLimit().GetUnitMultiplier().GetValue() != 2 || s.GetDurationUntilReset().GetSeconds() > 2*24*3600 {
		t.Errorf("%v", s)
	}
	// Mistakes are errors, and charge nothing.
	expect(t, client, own("user=a", 2, typev3.RateLimitUnit_UNKNOWN), "Unknown")
	expect(t, client, own("user=a", 2, 99), "Unknown")
	long.Descriptors[0].Limit.UnitMultiplier = wrapperspb.UInt32(1 << 31)
	expect(t, client, long, "Unknown")
	expect(t, client, asking("shop user=a"), "OK: OK 1")
}

// Requests may carry limits with any number of windows. The limiter has few rules for them, and so few series. Each
// window has a count of its own, which is the configured limit's count if that has the same window.
func TestWindowsOfRequests(t *testing.T) {
	server := start(t, "domain: d\ndescriptors: [{key: k, rate_limit: {unit: hour, unit_multiplier: 5, requests_per_unit: 10}}]")
	client := server.client(t)
	own := func(quota, hours uint32) *ratelimitv3.RateLimitRequest {
		request := asking("d k=v")
		request.Descriptors[0].Limit = &commonv3.RateLimitDescriptor_RateLimitOverride{
			RequestsPerUnit: quota, Unit: typev3.RateLimitUnit_HOUR, UnitMultiplier: wrapperspb.UInt32(hours),
		}
		return request
	}
	for hours := range uint32(20) {
		expect(t, client, own(3, hours+1), "OK: OK 2")
	}
	expect(t, client, own(4, 7), "OK: OK 2")
	expect(t, client, own(4, 8), "OK: OK 2")
	expect(t, client, own(4, 1), "OK: OK 2")
	expect(t, client, asking("d k=v"), "OK: OK 8") // the fifth request of the loop counts here
	_, text := get(t, server, "metrics", "/metrics")
	rules := make(map[string]bool)
	for line := range strings.Lines(text) {
		if _, labels, ok := strings.Cut(line, `,rule="`); ok {
			rule, _, _ := strings.Cut(labels, `"`)
			rules[rule] = true
		}
	}
	if len(rules) != 3 || !rules["1h0m0s"] || !rules["5h0m0s"] || !rules["other"] {
		t.Errorf("rules: %v", rules)
	}
}

// Unlimited limits, shadow mode, quotas, replaced limits, shared counts, and mistaken requests.
func TestModes(t *testing.T) {
	server := start(t, shop)
	client := server.client(t)
	response := expect(t, client, asking("shop free=a"), "OK: OK")
	if n := response.GetStatuses()[0].GetLimitRemaining(); n != 1<<32-1 {
		t.Errorf("%d remain", n)
	}
	expect(t, client, asking("shop shadow=a"), "OK: OK 0")
	expect(t, client, asking("shop shadow=a"), "OK: OK 0")
	if n := server.stats.Limit("shop.shadow").ShadowMode.Load(); n != 1 {
		t.Errorf("%d in shadow mode, want 1", n)
	}
	// Quotas deny a request only if all of them are over.
	expect(t, client, asking("shop quota=a quota2=a"), "OK: OK 0, OK 1")
	expect(t, client, asking("shop quota=a quota2=a user=q"), "OK: OVER 0, OK 0, OK 4")
	expect(t, client, asking("shop quota=a quota2=a"), "OVER: OVER 0, OVER 0")
	expect(t, client, asking("shop quota=a"), "OVER: OVER 0")
	// One limit replaces another limit of the request.
	expect(t, client, asking("shop base=a"), "OK: OK 0")
	expect(t, client, asking("shop base=a better=a"), "OK: OK, OK 9")
	expect(t, client, asking("shop base=a"), "OVER: OVER 0")
	// Values that match one pattern share a count.
	expect(t, client, asking("shop file=dir/a"), "OK: OK 1")
	expect(t, client, asking("shop file=dir/b"), "OK: OK 0")
	expect(t, client, asking("shop file=dir/c"), "OVER: OVER 0")
	expect(t, client, asking("shop file=else"), "OK: OK")
	// Mistaken requests.
	expect(t, client, &ratelimitv3.RateLimitRequest{Descriptors: asking("shop user=x").Descriptors}, "Unknown")
	expect(t, client, asking("shop"), "Unknown")
	expect(t, client, asking("other user=x"), "OK: OK")
	expect(t, client, &ratelimitv3.RateLimitRequest{Domain: "shop", Descriptors: []*commonv3.RateLimitDescriptor{{}}}, "OK: OK")
	if n := server.stats.NotFound.Load(); n != 1 {
		t.Errorf("%d domains not found", n)
	}

	shadow := start(t, shop, "SHADOW_MODE=true")
	expect(t, shadow.client(t), asking("shop zero=a"), "OK: OVER 0")
	if n := shadow.stats.GlobalShadowMode.Load(); n != 1 {
		t.Errorf("the global shadow mode has allowed %d requests, want 1", n)
	}
	quota := start(t, shop, "QUOTA_MODE=true").client(t)
	expect(t, quota, asking("shop zero=a user=a"), "OK: OVER 0, OK 4")
	expect(t, quota, asking("shop zero=a nothing=a"), "OK: OVER 0, OK")
	expect(t, quota, asking("shop zero=a"), "OVER: OVER 0")
	expect(t, quota, asking("shop zero=a free=a"), "OVER: OVER 0, OK") // what is unlimited is no quota
}

// Different lists of keys and values never share a count, whatever text they contain. (envoyproxy/ratelimit joins
// them with "_", and counts these together.)
func TestCountsDoNotCollide(t *testing.T) {
	client := start(t, `
domain: d
descriptors:
  - {key: a, descriptors: [{key: c, rate_limit: {unit: year, requests_per_unit: 9}}]}
  - {key: a_b, rate_limit: {unit: year, requests_per_unit: 9}}
  - {key: a, value: "b_*", rate_limit: {unit: year, requests_per_unit: 9}}
`).client(t)
	expect(t, client, asking("d a=b_c,c=d"), "OK: OK")
	expect(t, client, asking("d a=x,c=d"), "OK: OK 8")
	expect(t, client, asking("d a_b=c_c_d"), "OK: OK 8")
	expect(t, client, asking("d a=b_c_c_d"), "OK: OK 8")
	// Windows of different lengths that began at the same time have separate counts.
	own := asking("d k=v")
	own.Descriptors[0].Limit = &commonv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 9, Unit: typev3.RateLimitUnit_YEAR}
	expect(t, client, own, "OK: OK 8")
	own.Descriptors[0].Limit.UnitMultiplier = wrapperspb.UInt32(1)
	expect(t, client, own, "OK: OK 7")
}

// Headers show the limit that is closest to being reached. A limit that is exceeded takes precedence.
func TestHeaders(t *testing.T) {
	client := start(t, shop, "LIMIT_RESPONSE_HEADERS_ENABLED=true", "LIMIT_REMAINING_HEADER=X-Left").client(t)
	headers := func(words string) string {
		var all []string
		for _, h := range ask(t, client, asking(words)).response.GetResponseHeadersToAdd() {
			all = append(all, h.GetKey()+"="+h.GetValue())
		}
		return strings.Join(all, " ")
	}
	for words, want := range map[string]string{
		"shop user=a many=a":          "RateLimit-Limit=5 X-Left=4 ",
		"shop many=b user=b shadow=b": "RateLimit-Limit=1 X-Left=0 ",
		"shop shadow=c zero=c many=c": "RateLimit-Limit=0 X-Left=0 ",
		"shop free=a nothing=a":       "",
	} {
		if got := headers(words); !strings.HasPrefix(got, want) || want != "" && !strings.Contains(got, "RateLimit-Reset=") || want == "" && got != "" {
			t.Errorf("%s: %q, want %q", words, got, want)
		}
	}
	// If nothing is over its limit, and as much remains of two limits, the first one counts.
	tie := asking("shop user=c shadow=d")
	tie.HitsAddend = 5
	if all := expect(t, client, tie, "OK: OK 0, OK 0").GetResponseHeadersToAdd(); len(all) != 3 || all[0].GetValue() != "5" {
		t.Errorf("%v", all)
	}
}

// The metadata of limits that allowed the request is merged. It is kept even where a metric contains values, where
// envoyproxy/ratelimit loses it.
func TestDynamicMetadata(t *testing.T) {
	client := start(t, shop, "RESPONSE_DYNAMIC_METADATA=true").client(t)
	request := asking("shop quota=a quota2=a detail=a")
	request.HitsAddend = 2
	request.Descriptors[1].HitsAddend = wrapperspb.UInt64(1)
	got := expect(t, client, request, "OK: OVER 0, OK 1, OK 3").GetDynamicMetadata()
	want := `{"descriptors":[{"entries":["quota=a"]},{"entries":["quota2=a"],"hitsAddend":1},{"entries":["detail=a"]}],` +
		`"domain":"shop","hitsAddend":2,"metadata":{"kept":true,"more":[true],"pool":{"b":"two"}}}`
	if text := strings.ReplaceAll(protojson.Format(got), " ", ""); strings.ReplaceAll(text, "\n", "") != want {
		t.Errorf("%s, want %s", text, want)
	}
	both := start(t, shop, "RESPONSE_DYNAMIC_METADATA=true").client(t)
	got = expect(t, both, asking("shop quota=a quota2=a"), "OK: OK 0, OK 1").GetDynamicMetadata()
	if pool := got.GetFields()["metadata"].GetStructValue().GetFields()["pool"].GetStructValue().GetFields(); len(pool) != 2 {
		t.Errorf("%v", pool)
	}
	got = expect(t, both, asking("shop quota=b"), "OK: OK 0").GetDynamicMetadata()
	if pool := got.GetFields()["metadata"].GetStructValue().GetFields()["pool"].GetStructValue().GetFields(); len(pool) != 1 {
		t.Errorf("%v: the configuration's own was changed", pool)
	}
}

// Windows are aligned to the clock.
func TestWindowsOfSeconds(t *testing.T) {
	t.Parallel()
	client := start(t, "domain: d\ndescriptors: [{key: k, rate_limit: {unit: second, requests_per_unit: 2}}]").client(t)
	seen := make(map[int64]int)
	for deadline := time.Now().Add(30 * time.Second); len(seen) < 4 && time.Now().Before(deadline); {
		before := time.Now().Unix()
		a := ask(t, client, asking("d k=v"))
		if time.Now().Unix() != before {
			continue // the request may be in either window
		}
		seen[before]++
		over := a.response.GetOverallCode() == ratelimitv3.RateLimitResponse_OVER_LIMIT
		if n := seen[before]; n > 2 && !over {
			t.Fatalf("request %d of a second was let go on", n)
		} else if len(seen) > 1 && n == 1 && over && seen[before-1] > 2 {
			t.Fatal("the first request of a second was denied")
		}
		if s := a.response.GetStatuses()[0].GetDurationUntilReset().GetSeconds(); s != 1 {
			t.Fatalf("%d seconds until a second ends", s)
		}
	}
}

// Statistics have envoyproxy/ratelimit's names, and count hits above, near and below the limit.
func TestStatistics(t *testing.T) {
	server := start(t, shop)
	client := server.client(t)
	for _, hits := range []uint32{70, 20, 20, 5} {
		request := asking("shop many=a")
		request.HitsAddend = hits
		ask(t, client, request)
	}
	most := asking("shop user=a")
	most.Descriptors[0].HitsAddend = wrapperspb.UInt64(math.MaxUint64) // counters never fall
	ask(t, client, most)
	ask(t, client, asking("shop detail=x"))
	ask(t, client, asking("un:known a=b c=d"))
	ask(t, client, asking("shop"))
	var b strings.Builder
	if _, err := server.stats.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"ratelimit.service.rate_limit.shop.many.total_hits: 115",
		"ratelimit.service.rate_limit.shop.many.within_limit: 90",
		"ratelimit.service.rate_limit.shop.many.near_limit: 20",
		"ratelimit.service.rate_limit.shop.many.over_limit: 15",
		"ratelimit.service.rate_limit.shop.user.total_hits: 8589934592",
		"ratelimit.service.rate_limit.shop.user.over_limit: 8589934587",
		"ratelimit.service.rate_limit.shop.detail_x.total_hits: 1",
		"ratelimit.service.call.should_rate_limit.service_error: 1",
		"ratelimit.service.config_load_success: 1",
		"ratelimit.service.rate_limit.un_known.domain_not_found: 2",
		"ratelimit_server.ShouldRateLimit.total_requests: 8",
	} {
		if !strings.Contains(b.String(), want+"\n") {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

// Under limits that count only what is allowed, denied hits count as above the limit, and those that another limit
// denies, or that are given back, count neither as above nor as within it. Hits above any limit in shadow mode count
// for that mode, too.
func TestStatisticsOfEachKind(t *testing.T) {
	server := start(t, shop+`
  - {key: log, rate_limit: {unit: hour, requests_per_unit: 5, algorithm: sliding-log}}
  - {key: warn, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1, algorithm: sliding-log}}
`)
	client := server.client(t)
	for _, asked := range []struct {
		words string
		hits  uint32
		want  string
	}{
		{"better=a", 6, "OK: OK 4"},
		{"better=a", 6, "OVER: OVER 0"}, // two are within the limit, and near it
		{"better=a", 1, "OVER: OVER 0"},
		{"shadow=a", 3, "OK: OK 0"},
		{"shadow=a", 3, "OK: OK 0"},
		{"log=a", 3, "OK: OK 2"},
		{"log=a", 3, "OVER: OVER 0"},
		{"zero=a log=a", 1, "OVER: OVER 0, OK 2"},
		{"warn=a", 2, "OK: OK 0"},
	} {
		request := asking("shop " + asked.words)
		request.HitsAddend = asked.hits
		expect(t, client, request, asked.want)
	}
	back := asking("shop log=a")
	back.Descriptors[0].IsNegativeHits = true
	expect(t, client, back, "OK: OK 3")
	for name, want := range map[string][5]uint64{ // total, over, near, within, shadow
		"better": {13, 3, 2, 6, 0},
		"shadow": {6, 5, 1, 0, 5},
		"log":    {8, 3, 0, 3, 0},
		"warn":   {2, 2, 0, 0, 2},
	} {
		s := server.stats.Limit("shop." + name)
		got := [5]uint64{s.TotalHits.Load(), s.OverLimit.Load(), s.NearLimit.Load(), s.WithinLimit.Load(), s.ShadowMode.Load()}
		if got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// Hits count as near a limit if they are not above it, even if the limit, which the ratio multiplies as a float32,
// becomes larger thereby. (In envoyproxy/ratelimit the counter jumps by 2^64 then.)
func TestNearLimitOfLargeLimit(t *testing.T) {
	server := start(t, "domain: d\ndescriptors: [{key: k, rate_limit: {unit: year, requests_per_unit: 4294967295}}]", "NEAR_LIMIT_RATIO=1")
	for _, hits := range []uint32{math.MaxUint32 - 5, 10} {
		request := asking("d k=a")
		request.HitsAddend = hits
		ask(t, server.client(t), request)
	}
	var b strings.Builder
	if _, err := server.stats.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"near_limit: 0", "over_limit: 5", "within_limit: 4294967290"} {
		if !strings.Contains(b.String(), "ratelimit.service.rate_limit.d.k."+want+"\n") {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

// A service whose configuration keeps changing keeps a bounded number of names.
func TestStatisticsOfFormerConfigurations(t *testing.T) {
	server := start(t, shop)
	const each = 1_000
	for version := range 13 {
		var b strings.Builder
		b.WriteString("domain: d\ndescriptors:\n")
		for i := range each {
			fmt.Fprintf(&b, "- {key: k%d_%d, rate_limit: {unit: hour, requests_per_unit: 5}}\n", version, i)
		}
		must(t, server.load([]config.File{{Name: "f.yaml", Text: []byte(b.String())}}))
	}
	names := 0
	server.stats.Each(func(name string, _ uint64) {
		if strings.HasSuffix(name, ".total_hits") {
			names++
		}
	})
	if names < each || names > 10_000+each {
		t.Errorf("%d names", names)
	}
}

// A service without a configuration answers with the code that envoyproxy/ratelimit's errors have.
func TestNoConfiguration(t *testing.T) {
	server := startOn(t, redistest.Shared(t).Addr(), t.TempDir())
	if _, err := server.client(t).ShouldRateLimit(t.Context(), asking("shop user=a")); status.Code(err) != codes.Unknown {
		t.Error(err)
	}
}

// Limits that count no hits, because they are unlimited or replaced, take none of the names that contain values: the
// number of names is bounded.
func TestLimitsThatCountNothingTakeNoNames(t *testing.T) {
	server := start(t, `
domain: d
descriptors:
  - {key: free, detailed_metric: true, rate_limit: {unlimited: true}}
  - {key: base, detailed_metric: true, rate_limit: {name: base, unit: year, requests_per_unit: 1}}
  - {key: better, rate_limit: {unit: year, requests_per_unit: 10, replaces: [{name: base}]}}
  - {key: detail, detailed_metric: true, rate_limit: {unit: year, requests_per_unit: 1}}
`)
	client := server.client(t)
	const some = stats.MaxDynamic / 10
	for n := range 11 {
		for _, key := range []string{"free", "base"} {
			request := asking("d better=x")
			for i := range some {
				request.Descriptors = append(request.Descriptors, asking(fmt.Sprintf("d %s=%d", key, n*some+i)).Descriptors...)
			}
			if a := ask(t, client, request); a.err != nil {
				t.Fatal(a.err)
			}
		}
	}
	ask(t, client, asking("d detail=x"))
	if hits, left := server.stats.Limit("d.detail_x").TotalHits.Load(), server.stats.DynamicLeftOut.Load(); hits != 1 || left != 0 {
		t.Errorf("%d hits have the name with the value, and %d names are left out", hits, left)
	}
}
