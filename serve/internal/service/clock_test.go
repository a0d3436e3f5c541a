package service

import (
	"fmt"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/tierlimit/tierlimit/embedded"
	"github.com/tierlimit/tierlimit/serve/internal/config"
	"github.com/tierlimit/tierlimit/serve/internal/stats"
)

// Negative hits are given back in the window of Redis's clock, however far this instance's clock differs from it.
func TestNegativeHitsOfAnInstanceWithAnotherClock(t *testing.T) {
	limiter, err := embedded.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer limiter.Close()
	text := []byte(`
domain: d
descriptors:
  - {key: fixed, rate_limit: {unit: hour, requests_per_unit: 5}}
  - {key: log, rate_limit: {unit: hour, requests_per_unit: 5, algorithm: sliding-log}}
`)
	limits, err := config.Load(t.Context(), []config.File{{Name: "a", Text: text}}, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, ahead := range []time.Duration{0, 70 * time.Minute, -70 * time.Minute} {
		s := New(Limiters{All: limiter}, &stats.Set{}, Options{Within: time.Second, NearLimit: 0.8, Now: func() time.Time { return time.Now().Add(ahead) }})
		if err := s.Load(limits); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"fixed", "log"} {
			ask := func(hits uint64, negative bool) uint32 {
				t.Helper()
				answer, err := s.ShouldRateLimit(t.Context(), &ratelimitv3.RateLimitRequest{Domain: "d", Descriptors: []*commonv3.RateLimitDescriptor{{
					Entries:    []*commonv3.RateLimitDescriptor_Entry{{Key: key, Value: fmt.Sprint(ahead)}},
					HitsAddend: wrapperspb.UInt64(hits), IsNegativeHits: negative,
				}}})
				if err != nil {
					t.Fatal(err)
				}
				return answer.GetStatuses()[0].GetLimitRemaining()
			}
			if first, then := ask(3, false), ask(3, true); first != 2 || then != 5 {
				t.Errorf("%s, %v ahead: %d left, and %d after 3 were given back", key, ahead, first, then)
			}
		}
	}
}
