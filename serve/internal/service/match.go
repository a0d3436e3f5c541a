package service

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/serve/internal/config"
	"github.com/tierlimit/tierlimit/serve/internal/stats"
	"github.com/tierlimit/tierlimit/tiered"
)

// asked is a descriptor of a request, and its decision.
type asked struct {
	limit     *config.Limit // nil: none applies
	unlimited bool
	rule      *tiered.Rule // nil: nothing can be granted, or there is no limit
	window    string       // of a rule whose name does not contain it, see loaded.ruleName
	key       string
	hits      uint64 // at most maxHits
	negative  bool   // hits are given back
	counts    *stats.Limit
	statName  string // of the counts, if it contains values of the request

	asked    bool // the rule has been asked
	decision limit.Decision
	heldBack bool // allowed by this limit, but denied by another of the request
	over     bool
	// remaining is the units left, and reset the whole seconds until there are more.
	remaining, reset int64
}

// maxHits is larger than any limit. Hits beyond it would change nothing except the counters, which would overflow
// and fall.
const maxHits = 1 << 33

// cost returns the units to ask the rule for.
func (a *asked) cost() int64 { return int64(a.hits) }

// charges reports whether the hits of the descriptor are charged: otherwise it only looks, or gives hits back.
func (a *asked) charges() bool { return a.hits > 0 && !a.negative }

// match finds the limit of each descriptor of a request.
func (s *Service) match(l *loaded, request *ratelimitv3.RateLimitRequest) ([]asked, error) {
	domain := request.GetDomain()
	if !l.config.HasDomain(domain) {
		s.stats.DomainNotFound(domain, len(request.GetDescriptors()))
		return make([]asked, len(request.GetDescriptors())), nil
	}
	all := make([]asked, len(request.GetDescriptors()))
	named, replacing := false, false
	for i, d := range request.GetDescriptors() {
		a := &all[i]
		m := l.config.Match(domain, d.GetEntries())
		if d.GetLimit() != nil {
			if err := s.bringAlong(l, a, domain, d, m.Limit); err != nil {
				return nil, err
			}
			m.Values = nil // share_threshold applies to the configured limit only
		} else if m.Limit != nil {
			a.limit, a.rule, a.unlimited = m.Limit, m.Limit.Rule, m.Limit.Unlimited
			a.counts = l.counts[m.Limit]
			if m.Dynamic {
				a.statName = m.StatName
			}
		}
		if a.limit == nil {
			continue
		}
		named = named || a.limit.Name != ""
		replacing = replacing || len(a.limit.Replaces) > 0
		a.key = keyOf(a.window, domain, d.GetEntries(), m.Values)
		a.hits, a.negative = hitsOf(request, d), d.GetIsNegativeHits()
	}
	if named && replacing {
		replace(all)
	}
	for i := range all {
		a := &all[i]
		if a.unlimited {
			a.limit = nil
		}
		// Names are kept only for limits that count hits, because there may only be stats.MaxDynamic of them.
		if a.limit != nil && a.statName != "" {
			a.counts = s.stats.Dynamic(a.statName, a.counts)
		}
	}
	return all, nil
}

// bringAlong applies the limit that a descriptor carries itself. The configured limit, if there is one, sets how it
// is counted and what is done without Redis.
func (s *Service) bringAlong(l *loaded, a *asked, domain string, d *commonv3.RateLimitDescriptor, configured *config.Limit) error {
	own := d.GetLimit()
	unit := ratelimitv3.RateLimitResponse_RateLimit_Unit(own.GetUnit())
	window := config.WindowOf(unit, own.GetUnitMultiplier().GetValue())
	if window == 0 {
		return mistake("a descriptor's own limit has unit %v, must be second, minute, hour, day, week, month or year", unit)
	}
	terms := &noTerms
	if configured != nil {
		terms = &configured.Terms
	}
	a.limit = &config.Limit{
		Window: window,
		Terms:  *terms,
		Current: &ratelimitv3.RateLimitResponse_RateLimit{
			RequestsPerUnit: own.GetRequestsPerUnit(), Unit: unit, UnitMultiplier: own.GetUnitMultiplier(),
		},
	}
	var err error
	if a.rule, err = s.overrideRule(l, override{int64(own.GetRequestsPerUnit()), window, terms}); err != nil {
		return mistake("%v", err)
	}
	if l.ruleName(window) == otherWindows {
		a.window = window.String()
	}
	var otherwise *stats.Limit
	if configured != nil {
		otherwise = l.counts[configured]
	} else {
		otherwise = s.stats.Limit(domain + ".override")
	}
	a.counts = s.stats.Dynamic(nameOf(domain, d.GetEntries()), otherwise)
	return nil
}

var noTerms config.Terms

// replace removes the limits that other limits replace.
func replace(all []asked) {
	names := make(map[string]bool)
	for i := range all {
		if l := all[i].limit; l != nil {
			for _, name := range l.Replaces {
				names[name] = true
			}
		}
	}
	for i := range all {
		if l := all[i].limit; l != nil && !all[i].unlimited && names[l.Name] {
			all[i].limit, all[i].rule = nil, nil
		}
	}
}

// hitsOf returns the number of hits of a descriptor. A request's 0 means 1, and a descriptor's 0 only looks at the
// count.
func hitsOf(request *ratelimitv3.RateLimitRequest, d *commonv3.RateLimitDescriptor) uint64 {
	if own := d.GetHitsAddend(); own != nil {
		return min(own.GetValue(), maxHits)
	}
	return uint64(max(1, request.GetHitsAddend()))
}

// keyOf returns the key of a count. Its parts are the window, if the rule's name does not contain it, the domain, and
// the keys and values of the entries, with shared values replaced. The length precedes each part, so that different
// lists of parts have different keys.
func keyOf(window, domain string, entries []*commonv3.RateLimitDescriptor_Entry, values []string) string {
	var space [256]byte
	b := space[:0]
	part := func(text string) {
		b = strconv.AppendInt(b, int64(len(text)), 10)
		b = append(b, ':')
		b = append(b, text...)
	}
	if window != "" {
		part(window)
	}
	part(domain)
	for i, e := range entries {
		part(e.GetKey())
		if values != nil && values[i] != "" {
			part(values[i])
		} else {
			part(e.GetValue())
		}
	}
	if len(b) > limit.MaxKey {
		sum := sha256.Sum256(b)
		return "long:" + hex.EncodeToString(sum[:]) // all other keys begin with a digit
	}
	return string(b)
}

// nameOf returns the name of the statistics of a descriptor that carries its own limit.
func nameOf(domain string, entries []*commonv3.RateLimitDescriptor_Entry) string {
	var name strings.Builder
	for _, e := range entries {
		if name.Len() > 0 {
			name.WriteByte('.')
		}
		name.WriteString(e.GetKey())
		if e.GetValue() != "" {
			name.WriteString("_" + e.GetValue())
		}
	}
	return domain + "." + name.String() // the dot is there even without entries, as in envoyproxy/ratelimit
}

// untilNext returns the whole seconds until the next window begins.
func untilNext(window time.Duration, now time.Time) int64 {
	return seconds(window - time.Duration(now.UnixNano())%window)
}

// seconds returns a duration in seconds, rounded up.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
