package config

import (
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/plan"
	"github.com/tierlimit/tierlimit/tiered"
)

// Limit is what a descriptor's rate_limit says.
type Limit struct {
	At      Place
	Overlay Place // of what an overlay says of it; zero: nothing
	// StatName is the descriptor's path, with domain: what its statistics are called, if
	// none of them tells values.
	StatName string

	Name      string
	Replaces  []string
	Unlimited bool
	Shadow    bool // never over the limit, but counted
	Quota     bool // over the limit only if all quotas of the request are
	Metadata  *structpb.Struct

	// Current is what answers show of the limit. It is shared by all of them.
	Current *ratelimitv3.RateLimitResponse_RateLimit
	// Window is the limit's; of an unlimited one 0.
	Window time.Duration

	Terms Terms
	// Rule holds it. Whoever loads a configuration sets it; nil for a limit of 0, which
	// nothing passes, and for an unlimited one.
	Rule *tiered.Rule
}

// Terms are what this service adds: how to count and what to do without Redis.
type Terms struct {
	// Counted says that an algorithm or a need was stated, so that what is denied is not
	// charged. Otherwise units are counted in windows aligned to the clock, denied ones as
	// well, and Algorithm and Need mean nothing.
	Counted   bool
	Algorithm limit.Algorithm // automatic: by the size of the limit
	Need      plan.Need
	Outage    tiered.OutagePolicy
	Lease     int   // percent, 0: none
	Burst     int64 // of GCRA, 0: automatic
}

// Problem is a mistake in the limit.
func (l *Limit) Problem(err error) *Problem {
	what := err.Error()
	if l.Overlay != (Place{}) {
		what += " (with what " + l.Overlay.String() + " says of it)"
	}
	return &Problem{Place: l.At, What: what, Err: err}
}

// RequestsPerUnit is the quota.
func (l *Limit) RequestsPerUnit() int64 { return int64(l.Current.GetRequestsPerUnit()) }

var units = map[ratelimitv3.RateLimitResponse_RateLimit_Unit]time.Duration{
	ratelimitv3.RateLimitResponse_RateLimit_SECOND: time.Second,
	ratelimitv3.RateLimitResponse_RateLimit_MINUTE: time.Minute,
	ratelimitv3.RateLimitResponse_RateLimit_HOUR:   time.Hour,
	ratelimitv3.RateLimitResponse_RateLimit_DAY:    24 * time.Hour,
	ratelimitv3.RateLimitResponse_RateLimit_WEEK:   7 * 24 * time.Hour,
	ratelimitv3.RateLimitResponse_RateLimit_MONTH:  30 * 24 * time.Hour,
	ratelimitv3.RateLimitResponse_RateLimit_YEAR:   365 * 24 * time.Hour,
}

// WindowOf is the length of so many units, 0 of which are one; 0 if there is no such unit. A
// length that is too long for a limit is above [limit.MaxWindow].
func WindowOf(unit ratelimitv3.RateLimitResponse_RateLimit_Unit, multiplier uint32) time.Duration {
	length, ok := units[unit]
	if !ok {
		return 0
	}
	return length * time.Duration(min(max(1, int64(multiplier)), int64(limit.MaxWindow/length)+1))
}

// IsUnit reports whether a window is one unit long.
func IsUnit(window time.Duration) bool {
	for _, length := range units {
		if window == length {
			return true
		}
	}
	return false
}
