//go:build original

package serve

import (
	"context"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

// Both services agree on limits per second, whose windows begin again all the time.
func TestDifferentialSeconds(t *testing.T) {
	dir := configDir(t, "domain: d\ndescriptors: [{key: k, rate_limit: {unit: second, requests_per_unit: 5}}]")
	theirs, ours := startOriginal(t, dir), startOwn(t, dir).client(t)
	whole, sequences := 0, [2][]string{}
	for began := time.Now(); whole < 5 && time.Since(began) < 60*time.Second; {
		// A comparison counts only if all of it lies in one second.
		time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
		second := time.Now().Unix()
		sequences = [2][]string{}
		for range 8 {
			for i, client := range []ratelimitv3.RateLimitServiceClient{theirs, ours} {
				sequences[i] = append(sequences[i], ask(t, client, asking("d k=v")).text())
			}
		}
		if time.Now().Unix() != second {
			continue
		}
		whole++
		for i := range sequences[0] {
			if sequences[0][i] != sequences[1][i] {
				t.Fatalf("request %d of a second:\noriginal: %s\nours:     %s", i, sequences[0][i], sequences[1][i])
			}
		}
	}
	if whole == 0 {
		t.Skip("the machine is too slow to ask 16 times within a second")
	}
}

// Each subtest shows in both services a known defect of the original that this service does not have, and so a
// deliberate difference.
func TestDifferentialKnownDefects(t *testing.T) {
	dir := configDir(t, `
domain: d
descriptors:
  - {key: a, value: "b*", rate_limit: {unit: year, requests_per_unit: 9}}
  - {key: a_b, rate_limit: {unit: year, requests_per_unit: 9}}
  - {key: k, rate_limit: {unit: year, requests_per_unit: 9}}
  - {key: detail, detailed_metric: true, rate_limit: {unit: year, requests_per_unit: 9}, metadata: {m: 1}}
  - {key: pool1, rate_limit: {unit: year, requests_per_unit: 9}, metadata: {pool: {a: 1}}}
  - {key: pool2, rate_limit: {unit: year, requests_per_unit: 9}, metadata: {pool: {b: 2}}}
`)
	theirs, ours := startOriginal(t, dir, "RESPONSE_DYNAMIC_METADATA=true"), startOwn(t, dir, "RESPONSE_DYNAMIC_METADATA=true").client(t)
	both := func(request *ratelimitv3.RateLimitRequest, original, own string) (a, b answer) {
		t.Helper()
		a, b = ask(t, theirs, request), ask(t, ours, request)
		if got := short(a); got != original {
			t.Errorf("the original: %s, was %s when this was written", got, original)
		}
		if got := short(b); got != own {
			t.Errorf("ours: %s, want %s", got, own)
		}
		return a, b
	}
	t.Run("parts of keys and values run into each other", func(t *testing.T) {
		both(asking("d a=b_c"), "OK: OK 8", "OK: OK 8")
		both(asking("d a_b=c"), "OK: OK 7", "OK: OK 8")
	})
	t.Run("metadata is lost where a metric tells values", func(t *testing.T) {
		a, b := both(asking("d detail=x"), "OK: OK 8", "OK: OK 8")
		if a.response.GetDynamicMetadata().GetFields()["metadata"] != nil {
			t.Error("the original has kept it")
		}
		if b.response.GetDynamicMetadata().GetFields()["metadata"] == nil {
			t.Error("ours is lost")
		}
	})
	t.Run("metadata that is merged changes the configuration", func(t *testing.T) {
		both(asking("d pool1=x pool2=x"), "OK: OK 8, OK 8", "OK: OK 8, OK 8")
		a, b := both(asking("d pool1=x"), "OK: OK 7", "OK: OK 7")
		fields := func(a answer) int {
			return len(a.response.GetDynamicMetadata().GetFields()["metadata"].GetStructValue().GetFields()["pool"].GetStructValue().GetFields())
		}
		if fields(a) != 2 {
			t.Errorf("the original has %d fields, 2 when this was written", fields(a))
		}
		if fields(b) != 1 {
			t.Errorf("ours has %d fields, want 1", fields(b))
		}
	})
	t.Run("negative hits are charged", func(t *testing.T) {
		request := asking("d k=negative")
		request.Descriptors[0].HitsAddend, request.Descriptors[0].IsNegativeHits = wrapperspb.UInt64(3), true
		both(request, "OK: OK 6", "OK: OK 9")
	})
	t.Run("multiples of a unit are one of them", func(t *testing.T) {
		request := asking("d k=multiple")
		request.Descriptors[0].Limit = &commonv3.RateLimitDescriptor_RateLimitOverride{
			RequestsPerUnit: 5, Unit: typev3.RateLimitUnit_DAY, UnitMultiplier: wrapperspb.UInt32(30),
		}
		a, b := both(request, "OK: OK 4", "OK: OK 4")
		if a.err != nil || b.err != nil {
			return // it has been reported
		}
		of := func(a answer) int64 { return a.response.GetStatuses()[0].GetDurationUntilReset().GetSeconds() }
		if of(a) > 24*3600 {
			t.Error("the original counts them")
		}
		if a.response.GetStatuses()[0].GetCurrentLimit().GetUnitMultiplier() != nil {
			t.Error("the original says them")
		}
		if b.response.GetStatuses()[0].GetCurrentLimit().GetUnitMultiplier().GetValue() != 30 {
			t.Error("ours does not say them")
		}
		if of(b) == of(a) && time.Now().Unix()/86400%30 != 29 {
			t.Error("ours does not")
		}
	})
	t.Run("hits beyond 63 bits are an error", func(t *testing.T) {
		request := asking("d k=huge")
		request.Descriptors[0].HitsAddend = wrapperspb.UInt64(1 << 63)
		both(request, "Unknown", "OVER: OVER 0")
	})
	t.Run("without Redis requests fail", func(t *testing.T) {
		redis := redistest.Start(t)
		theirs := startOriginalAt(t, redis.Addr(), dir)
		ours := startOn(t, redis.Addr(), dir, "TIERLIMIT_DEADLINE=100ms").client(t)
		ask(t, theirs, asking("d k=v"))
		ask(t, ours, asking("d k=v"))
		redis.Kill()
		began := time.Now()
		if a := ask(t, theirs, asking("d k=v")); a.err == nil {
			t.Error("the original decides")
		} else {
			t.Logf("the original: %v after %v", status.Code(a.err), time.Since(began))
		}
		began = time.Now()
		if b := ask(t, ours, asking("d k=v")); b.err != nil {
			t.Error(b.err)
		}
		t.Logf("ours: a decision after %v", time.Since(began))
	})
	t.Run("a Redis that hangs takes Envoy's 20 ms from each request", func(t *testing.T) {
		redis := redistest.Start(t)
		clients := map[string]ratelimitv3.RateLimitServiceClient{
			"the original": startOriginalAt(t, redis.Addr(), dir),
			"ours":         startOn(t, redis.Addr(), dir, "TIERLIMIT_DEADLINE=").client(t),
		}
		for _, client := range clients {
			ask(t, client, asking("d k=v"))
		}
		redis.Pause()
		defer redis.Resume()
		answered := answeredInTime(t, clients)
		if answered["the original"] > 0 || answered["ours"] < 100 {
			t.Errorf("answered in time, of 200: %v", answered)
		}
	})
	t.Run("a slow Redis takes them as well", func(t *testing.T) {
		redis := startSlowPath(t, redistest.Start(t).Addr())
		clients := map[string]ratelimitv3.RateLimitServiceClient{
			"the original": startOriginalAt(t, redis.addr(), dir),
			"ours":         startOn(t, redis.addr(), dir, "TIERLIMIT_DEADLINE=").client(t),
		}
		for _, client := range clients {
			ask(t, client, asking("d k=v"))
		}
		redis.delay(100 * time.Millisecond)
		answered := answeredInTime(t, clients)
		if answered["the original"] > 0 || answered["ours"] < 100 {
			t.Errorf("answered in time, of 200: %v", answered)
		}
	})
	t.Run("an unknown unit ends the process", func(t *testing.T) { // the last subtest, because it ends the original
		request := asking("d k=v")
		request.Descriptors[0].Limit = &commonv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 5}
		both(request, "Unavailable", "Unknown")
		if _, err := ours.ShouldRateLimit(t.Context(), asking("d k=v")); err != nil {
			t.Error(err)
		}
	})
}

// answeredInTime returns how many of 200 requests are answered within the time that Envoy waits by default.
func answeredInTime(t *testing.T, clients map[string]ratelimitv3.RateLimitServiceClient) map[string]int {
	t.Helper()
	answered := make(map[string]int)
	for name, client := range clients {
		for range 200 {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			if _, err := client.ShouldRateLimit(ctx, asking("d k=v")); err == nil {
				answered[name]++
			}
			cancel()
		}
	}
	t.Logf("answered in time, of 200: %v", answered)
	return answered
}
