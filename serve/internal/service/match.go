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

// asked is a descriptor of a request, and what became of it.
type asked struct {
	limit     *config.Limit // nil: none applies
	unlimited bool
	rule      *tiered.Rule // nil: the limit is 0
	window    string       // of a rule whose name does not tell it, see loaded.ruleName
	key       string
	hits      uint64 // mostHits at most
	negative  bool   // hits are given back
	counts    *stats.Limit

	asked    bool // the rule was
	decision limit.Decision
	heldBack bool // it would have been granted, but for others of the request
	over     bool
	// remaining units, and whole seconds until there are more.
	remaining, reset int64
}

// mostHits is more than any limit: what is beyond changes nothing, but for counters, which it would
// make fall.
const mostHits = 1 << 33

// cost is what the rule is asked for.
func (a *asked) cost() int64 { return int64(a.hits) }

// match finds the limit of each descriptor.
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
			m.Values = nil // share_threshold is of the configured limit
		} else if m.Limit != nil {
			a.limit, a.rule, a.unlimited = m.Limit, m.Limit.Rule, m.Limit.Unlimited
			a.counts = l.counts[m.Limit]
			if m.Dynamic {
				a.counts = s.stats.Dynamic(m.StatName, a.counts)
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
		if all[i].unlimited {
			all[i].limit = nil
		}
	}
	return all, nil
}

// bringAlong holds a descriptor to the limit it has itself. How that is counted, and what is
// done without Redis, is said by the configured limit, if there is one.
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

// replace takes out limits that others name.
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

// hitsOf is how many hits a descriptor stands for. 0 of a request is 1; 0 of a descriptor
// looks.
func hitsOf(request *ratelimitv3.RateLimitRequest, d *commonv3.RateLimitDescriptor) uint64 {
	if own := d.GetHitsAddend(); own != nil {
		return min(own.GetValue(), mostHits)
	}
	return uint64(max(1, request.GetHitsAddend()))
}

// keyOf tells what shares a count: the window, if the rule's name does not tell it, domain, keys
// and values, or what stands for them. Each part is preceded by its length, so that no two lists of
// parts are the same.
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
		return "long:" + hex.EncodeToString(sum[:]) // no other key begins so
	}
	return string(b)
}

// nameOf is what statistics of a descriptor with its own limit are called.
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
	return domain + "." + name.String() // with the dot also if there are no entries, as in the original
}

// untilNext is whole seconds until the next window begins.
func untilNext(window time.Duration, now time.Time) int64 {
	return seconds(window - time.Duration(now.UnixNano())%window)
}

// seconds is a duration in whole seconds, rounded up.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
