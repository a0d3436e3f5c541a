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

// DegradedHeader is added to answers, where headers are, that were decided without Redis.
const DegradedHeader = "x-ratelimit-degraded"

// space is what most answers are made of, so that it is allocated at once.
type space struct {
	response ratelimitv3.RateLimitResponse
	pointers [2]*ratelimitv3.RateLimitResponse_DescriptorStatus
	statuses [1]statusSpace
}

// statusSpace is a descriptor's status, with what it points to.
type statusSpace struct {
	ratelimitv3.RateLimitResponse_DescriptorStatus
	reset durationpb.Duration
}

// answer makes the answer to a request whose descriptors have been decided.
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

// isUnknown reports whether nothing is known of a descriptor, because another had denied the request
// before it was asked for. Its status has no limit: Envoy tells clients of the limit with the least
// remaining, and of its reset, which must be those of the one that denied.
func (a *asked) isUnknown() bool { return a.decision.HeldBack && a.decision.Remaining == 0 }

// judge says of a descriptor whether it is over its limit, and what is left, and counts that.
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
		a.remaining = max(0, quota-d.Used)
		if d.ResetAfter > 0 { // Redis's clock is the one that all share
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

// judgeCounted is judge where only what is allowed counts.
func (s *Service) judgeCounted(a *asked) {
	d := &a.decision
	a.counts.TotalHits.Add(a.hits)
	switch {
	case a.heldBack, a.asked && d.Allowed, a.hits == 0, a.negative:
		a.remaining, a.reset = d.Remaining, seconds(d.ResetAfter)
	case a.asked:
		a.over, a.reset = true, max(1, seconds(d.RetryAfter))
	default: // more than can ever be granted
		a.over, a.reset = true, seconds(a.limit.Window)
	}
	s.countWhole(a)
}

// countWhole counts a descriptor's hits as over the limit or within it, all of them.
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

// count counts hits by where they lie between the count before and after: above the limit, near
// it, or below.
func (s *Service) count(a *asked, before, after int64) {
	quota := a.limit.RequestsPerUnit()
	near := int64(math.Floor(float64(float32(quota) * s.options.NearLimit)))
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
