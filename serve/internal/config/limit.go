package config

import (
	"cmp"
	"strings"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/plan"
	"github.com/tierlimit/tierlimit/tiered"
)

// Limit is a limit that a descriptor's rate_limit defines.
type Limit struct {
	At      Place
	Overlay Place // the overlay entry that was merged into it; zero: none
	// StatName is the descriptor's path, with its domain. Statistics have this name unless they contain values of
	// requests.
	StatName string

	Name      string
	Replaces  []string
	Unlimited bool
	Shadow    bool // never over the limit, but its hits are counted
	Quota     bool // over the limit only if all quotas of the request are
	Metadata  *structpb.Struct

	// Current is the limit as answers show it. All answers share it.
	Current *ratelimitv3.RateLimitResponse_RateLimit
	// Window is the limit's window, or 0 for an unlimited one.
	Window time.Duration

	Terms Terms
	// Rule holds the limit. Whoever loads a configuration sets it. It is nil for an unlimited limit, and for a limit
	// of 0 that counts only what is allowed, because nothing passes it.
	Rule *tiered.Rule
}

// Terms are the settings that this service adds: how to count, and what to do without Redis.
type Terms struct {
	// Counted is true if the limit states an algorithm or a need. Denied requests are not charged then. Otherwise
	// units are counted in windows aligned to the clock, including those of denied requests, and Algorithm and Need
	// have no effect.
	Counted bool
	// Debt is true if the hits of requests have been used already, such as costs that are known at the end of a request.
	// They are charged whether or not they fit, and requests that charge nothing are denied while no unit is free.
	Debt      bool
	Algorithm limit.Algorithm // automatic: chosen by the size of the limit
	Need      plan.Need
	Outage    tiered.OutagePolicy
	Lease     int   // percent, 0: none
	Burst     int64 // of GCRA, 0: automatic
}

// Problem returns an error of the limit as a Problem with its place.
func (l *Limit) Problem(err error) *Problem {
	what := err.Error()
	if l.Overlay != (Place{}) {
		what += " (with the overlay entry at " + l.Overlay.String() + ")"
	}
	return &Problem{Place: l.At, What: what, Err: err}
}

// RequestsPerUnit returns the limit's number of units per window.
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

// WindowOf returns the length of multiplier units, where a multiplier of 0 means 1. It returns 0 if there is no such
// unit, and a length above [limit.MaxWindow] if the length is too long for a limit.
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

// limit checks a rate_limit and makes a Limit of it.
func (p *problems) limit(d *descriptor, path string) *Limit {
	l := d.limit
	unit := ratelimitv3.RateLimitResponse_RateLimit_Unit(ratelimitv3.RateLimitResponse_RateLimit_Unit_value[strings.ToUpper(l.unit)])
	result := &Limit{
		At: p.at(l.at), StatName: path, Name: l.name,
		Unlimited: l.unlimited, Shadow: d.shadow, Quota: d.quota, Metadata: d.metadata, Terms: l.terms, Overlay: l.overlay,
		Current: &ratelimitv3.RateLimitResponse_RateLimit{RequestsPerUnit: l.requestsPerUnit, Unit: unit, Name: l.name},
	}
	for _, r := range l.replaces {
		if r.name == l.name && r.name != "" {
			p.addf(r.at, "the limit %q replaces itself", r.name)
		}
		result.Replaces = append(result.Replaces, r.name)
	}
	switch {
	case l.unlimited && unit != 0:
		p.addf(l.unitAt, "an unlimited rate_limit has unit %q, must have none", l.unit)
		return result
	case l.unlimited && l.own != nil:
		p.addf(l.own, "an unlimited rate_limit must not set how to count")
		return result
	case l.unlimited:
		return result
	case l.windowAt != nil:
		if l.unitAt != nil || l.multiplier > 0 {
			p.addf(l.windowAt, "rate_limit has both a window and a unit, choose one of them")
			return result
		}
		result.Window = l.window
		result.Current.Unit, result.Current.UnitMultiplier = unitsOf(l.window)
	case unit == 0:
		where := cmp.Or(l.unitAt, l.at)
		p.addf(where, "unit is %q, must be second, minute, hour, day, week, month or year", l.unit)
		return result
	default:
		result.Window = WindowOf(unit, l.multiplier)
		if l.multiplier > 0 {
			result.Current.UnitMultiplier = wrapperspb.UInt32(l.multiplier)
		}
	}
	// The quota may be 0 here, but package limit does not accept 0.
	if err := limit.Per(max(1, result.RequestsPerUnit()), result.Window).WithBurst(l.terms.Burst).Validate(); err != nil {
		problem := result.Problem(err)
		problem.Place = p.at(cmp.Or(l.windowAt, l.at))
		p.add(problem)
	}
	return result
}

// unitsOf returns a window as answers can show it, in seconds. A window that is not a multiple of a second cannot be
// shown.
func unitsOf(window time.Duration) (ratelimitv3.RateLimitResponse_RateLimit_Unit, *wrapperspb.UInt32Value) {
	if window%time.Second != 0 {
		return ratelimitv3.RateLimitResponse_RateLimit_UNKNOWN, nil
	}
	return ratelimitv3.RateLimitResponse_RateLimit_SECOND, wrapperspb.UInt32(uint32(window / time.Second))
}
