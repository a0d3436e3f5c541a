package service

import (
	"math"
	"slices"
	"strconv"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/tierlimit/tierlimit/limit"
)

// DegradedHeader is added to answers that were decided without Redis, if headers are on.
const DegradedHeader = "x-ratelimit-degraded"

// space has the parts of most answers, so that one allocation suffices.
type space struct {
	response ratelimitv3.RateLimitResponse
	pointers [2]*ratelimitv3.RateLimitResponse_DescriptorStatus
	statuses [1]statusSpace
}

// statusSpace is the status of a descriptor, with the duration that it points to.
type statusSpace struct {
	ratelimitv3.RateLimitResponse_DescriptorStatus
	reset durationpb.Duration
}

// answer builds the answer to a request whose descriptors have been decided.
func (s *Service) answer(request *ratelimitv3.RateLimitRequest, all []asked) *ratelimitv3.RateLimitResponse {
	space := &space{}
	statuses := space.statuses[:]
	if len(all) > len(statuses) {
		statuses = make([]statusSpace, len(all))
	}
	response := &space.response
	response.OverallCode = ratelimitv3.RateLimitResponse_OK
	response.Statuses = slices.Grow(space.pointers[:0], len(all))
	var tightest *asked
	var left int64 = math.MaxUint32
	over, quotas, quotasOver, degraded := false, 0, 0, false
	for i := range all {
		a, st := &all[i], &statuses[i]
		response.Statuses = append(response.Statuses, &st.RateLimitResponse_DescriptorStatus)
		st.Code = ratelimitv3.RateLimitResponse_OK
		if a.unlimited {
			st.LimitRemaining = math.MaxUint32
			continue
		}
		if a.limit != nil {
			s.judge(a)
			degraded = degraded || a.asked && a.decision.Degraded()
			if !a.isUnknown() {
				st.CurrentLimit, st.LimitRemaining = a.limit.Current, uint32(min(a.remaining, math.MaxUint32))
				st.reset.Seconds = a.reset
				st.DurationUntilReset = &st.reset
				if a.remaining < left {
					tightest, left = a, a.remaining
				}
			}
		}
		quota := s.options.QuotaMode || a.limit != nil && a.limit.Quota
		if quota {
			quotas++
		}
		if a.over && !a.limit.Shadow {
			st.Code = ratelimitv3.RateLimitResponse_OVER_LIMIT
			if quota {
				quotasOver++
			} else {
				over = true
				tightest, left = a, 0
			}
		}
	}
	if over || quotas > 0 && quotas == quotasOver {
		response.OverallCode = ratelimitv3.RateLimitResponse_OVER_LIMIT
		if s.options.ShadowMode {
			response.OverallCode = ratelimitv3.RateLimitResponse_OK
			s.stats.GlobalShadowMode.Add(1)
		}
	}
	if degraded {
		s.stats.Degraded.Add(1)
	}
	if s.options.Headers {
		s.addHeaders(response, tightest, degraded)
	}
	if s.options.DynamicMetadata {
		response.DynamicMetadata = dynamicMetadata(request, response.Statuses, all)
	}
	return response
}

func (s *Service) addHeaders(response *ratelimitv3.RateLimitResponse, tightest *asked, degraded bool) {
	if tightest != nil {
		number := func(name string, value int64) *corev3.HeaderValue {
			return &corev3.HeaderValue{Key: name, Value: strconv.FormatInt(value, 10)}
		}
		response.ResponseHeadersToAdd = []*corev3.HeaderValue{
			number(s.options.LimitHeader, tightest.limit.RequestsPerUnit()),
			number(s.options.RemainingHeader, tightest.remaining),
			number(s.options.ResetHeader, tightest.reset),
		}
	}
	if degraded {
		response.ResponseHeadersToAdd = append(response.ResponseHeadersToAdd, &corev3.HeaderValue{Key: DegradedHeader, Value: "true"})
	}
}

// isUnknown reports whether nothing is known about a descriptor because another had denied the request before this
// one was asked for. Its status shows no limit: Envoy reports the limit with the least remaining, and that limit's
// reset, to clients, and this must be the limit that denied.
func (a *asked) isUnknown() bool { return a.decision.HeldBack && a.decision.Remaining == 0 }

// judge determines whether a descriptor is over its limit and how much remains, and counts its hits.
func (s *Service) judge(a *asked) {
	if a.limit.Terms.Counted {
		s.judgeCounted(a)
		return
	}
	d, quota, hits := &a.decision, a.limit.RequestsPerUnit(), a.cost()
	a.reset = untilNext(a.limit.Window, s.options.Now())
	a.over = a.isAbove()
	a.counts.TotalHits.Add(a.hits)
	switch d.Tier {
	case limit.TierRedis:
		// While Redis does not know of all grants, less remains than its count says.
		a.remaining = max(0, min(quota-d.Used, d.Remaining))
		if d.ResetAfter > 0 { // all instances share Redis's clock
			a.reset = seconds(d.ResetAfter)
		}
		before := d.Used
		if !a.negative {
			before -= hits
		}
		s.count(a, before, d.Used)
	case limit.TierLocal:
		a.counts.OverLimit.Add(a.hits)
		a.counts.OverLimitWithLocalCache.Add(a.hits)
		if a.limit.Shadow {
			a.counts.ShadowMode.Add(a.hits)
		}
	default:
		s.countWhole(a)
		if !a.over {
			a.remaining = min(d.Remaining, quota)
		}
	}
}

// judgeCounted is judge for limits that count only what is allowed.
func (s *Service) judgeCounted(a *asked) {
	d := &a.decision
	a.counts.TotalHits.Add(a.hits)
	switch {
	case !s.denied(a):
		a.remaining, a.reset = d.Remaining, seconds(d.ResetAfter)
	case a.asked:
		a.over, a.reset = true, max(1, seconds(d.RetryAfter))
	default: // more hits than can ever be granted
		a.over, a.reset = true, seconds(a.limit.Window)
	}
	s.countWhole(a)
}

// countWhole counts all hits of a descriptor as either over the limit or within it.
func (s *Service) countWhole(a *asked) {
	switch {
	case a.over:
		a.counts.OverLimit.Add(a.hits)
		if a.limit.Shadow {
			a.counts.ShadowMode.Add(a.hits)
		}
	case !a.heldBack && !a.negative:
		a.counts.WithinLimit.Add(a.hits)
	}
}

// count counts hits by their position between the counts before and after them: above the limit, near the limit, or
// below it.
func (s *Service) count(a *asked, before, after int64) {
	quota := a.limit.RequestsPerUnit()
	// As a float32, a large limit may be rounded up.
	near := min(quota, int64(math.Floor(float64(float32(quota)*s.options.NearLimit))))
	hits := after - before
	switch {
	case a.over && before >= quota:
		a.counts.OverLimit.Add(a.hits)
		if a.limit.Shadow {
			a.counts.ShadowMode.Add(a.hits)
		}
	case a.over:
		a.counts.OverLimit.Add(uint64(after - quota))
		a.counts.NearLimit.Add(uint64(quota - max(near, before)))
		if a.limit.Shadow {
			a.counts.ShadowMode.Add(uint64(after - quota))
		}
	default:
		if after > near {
			a.counts.NearLimit.Add(uint64(min(hits, after-near)))
		}
		a.counts.WithinLimit.Add(uint64(hits))
	}
}
