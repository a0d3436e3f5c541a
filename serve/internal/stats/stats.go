// Package stats counts what a rate limit service does, under the names that envoyproxy/ratelimit uses for its
// statistics.
package stats

import (
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode"
)

// Limit counts the hits of one limit.
type Limit struct {
	Name    string // the descriptor's path, sanitized
	key     string // the path itself
	dynamic bool   // the name contains values of requests

	TotalHits, OverLimit, NearLimit, WithinLimit, ShadowMode, OverLimitWithLocalCache atomic.Uint64
}

// each calls f with each counter.
func (l *Limit) each(f func(name string, value uint64)) {
	f("total_hits", l.TotalHits.Load())
	f("over_limit", l.OverLimit.Load())
	f("near_limit", l.NearLimit.Load())
	f("within_limit", l.WithinLimit.Load())
	f("shadow_mode", l.ShadowMode.Load())
	f("over_limit_with_local_cache", l.OverLimitWithLocalCache.Load())
}

// MaxDynamic is how many limits are counted whose names contain values of requests, because such values are
// unbounded. Hits of further ones are counted under the name of their descriptor.
const MaxDynamic = 10_000

// longestName is the longest name made from requests that is kept, in bytes. A bound on the number of names alone
// would not bound the memory.
const longestName = 500

// Set is the statistics of a service. It is safe for concurrent use.
type Set struct {
	RedisError, ServiceError, ConfigLoadSuccess, ConfigLoadError, GlobalShadowMode atomic.Uint64
	// Degraded counts requests with a descriptor that was decided without Redis. DynamicLeftOut counts hits that are
	// counted under a descriptor's name for lack of room, see MaxDynamic. envoyproxy/ratelimit has neither.
	Degraded, DynamicLeftOut atomic.Uint64
	// NotFound counts descriptors of domains that are not configured, see DomainNotFound.
	NotFound atomic.Uint64

	TotalRequests atomic.Uint64
	ResponseTime  Histogram

	limits  sync.Map // of *Limit, by name
	dynamic atomic.Int64

	mu      sync.Mutex        // guards the fields up to domains
	inForce map[string]bool   // names of the configuration
	retired []string          // names that the configuration no longer has, oldest first
	gone    map[series]uint64 // counts of names that are no longer kept (see maxRetired), of sums that have other names

	domains      sync.Map // of *atomic.Uint64, by name
	domainsKnown atomic.Int64
}

// maxDomains is how many unknown domains are counted by name.
const maxDomains = 1_000

// DomainNotFound counts descriptors of a domain that is not configured. It adds them to the total of all domains and,
// for up to maxDomains domains, to the domain's own count.
func (s *Set) DomainNotFound(domain string, descriptors int) {
	s.NotFound.Add(uint64(descriptors))
	if len(domain) > longestName {
		return
	}
	of, known := s.domains.Load(domain)
	if !known {
		if s.domainsKnown.Add(1) > maxDomains {
			s.domainsKnown.Add(-1)
			return
		}
		if of, known = s.domains.LoadOrStore(strings.Clone(domain), new(atomic.Uint64)); known {
			s.domainsKnown.Add(-1) // several requests brought the same new name at the same time
		}
	}
	of.(*atomic.Uint64).Add(uint64(descriptors))
}

// maxRetired is how many names are kept that the configuration no longer has. Their last counts can still be read,
// and counting continues if the configuration has them again. When there are more, the oldest are forgotten.
const maxRetired = 10_000

// InForce sets which limits the configuration in force has.
func (s *Set) InForce(limits []*Limit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.inForce
	s.inForce = make(map[string]bool, len(limits))
	for _, l := range limits {
		s.inForce[l.key] = true
		delete(before, l.key)
	}
	s.retired = slices.DeleteFunc(s.retired, func(name string) bool { return s.inForce[name] })
	s.retired = append(s.retired, slices.Sorted(maps.Keys(before))...)
	if len(s.retired) <= maxRetired {
		return
	}
	for len(s.retired) > maxRetired {
		s.forget(s.retired[0])
		s.retired = s.retired[1:]
	}
	s.endSums()
}

// forget stops keeping a name. Its counts remain part of the sums that contain them. The caller holds mu.
func (s *Set) forget(name string) {
	known, ok := s.limits.Load(name)
	if !ok || known.(*Limit).dynamic { // dynamic names are kept, as MaxDynamic bounds their number
		return
	}
	s.limits.Delete(name)
	if s.gone == nil {
		s.gone = make(map[series]uint64)
	}
	known.(*Limit).eachSeries(func(of series, value uint64) {
		if value > 0 {
			s.gone[of] += value
		}
	})
}

// Limit returns the counts of a name.
func (s *Set) Limit(name string) *Limit {
	if known, ok := s.limits.Load(name); ok {
		return known.(*Limit)
	}
	l, _ := s.store(name, false)
	return l
}

// store returns the counts of a name, and reports whether the name was already known.
func (s *Set) store(name string, dynamic bool) (l *Limit, known bool) {
	name = strings.Clone(name)
	stored, known := s.limits.LoadOrStore(name, &Limit{Name: sanitize(name), key: name, dynamic: dynamic})
	return stored.(*Limit), known
}

// Dynamic returns the counts of a name that contains values of requests. If the name is too long or there are too
// many such names, it returns otherwise.
func (s *Set) Dynamic(name string, otherwise *Limit) *Limit {
	if known, ok := s.limits.Load(name); ok {
		return known.(*Limit)
	}
	if len(name) > longestName {
		s.DynamicLeftOut.Add(1)
		return otherwise
	}
	if s.dynamic.Add(1) > MaxDynamic {
		s.dynamic.Add(-1)
		s.DynamicLeftOut.Add(1)
		return otherwise
	}
	l, known := s.store(name, true)
	if known {
		s.dynamic.Add(-1) // several requests brought the same new name at the same time
	}
	return l
}

var address = regexp.MustCompile(`\d{1,3}(\.\d{1,3}){3}`)

// sanitize replaces the characters that separate parts of names or lines. It replaces all other control characters as
// well, because a terminal that shows the name would obey them, and clients choose names of domains and values.
func sanitize(name string) string {
	name = strings.Map(func(r rune) rune {
		if r == ':' || r == '|' || unicode.IsControl(r) {
			return '_'
		}
		return r
	}, strings.ToValidUTF8(name, "?"))
	return address.ReplaceAllStringFunc(name, func(a string) string { return strings.ReplaceAll(a, ".", "_") })
}

// Each calls f with the name and value of each counter, sorted by name.
func (s *Set) Each(f func(name string, value uint64)) {
	all := map[string]uint64{
		"ratelimit.service.call.should_rate_limit.redis_error":   s.RedisError.Load(),
		"ratelimit.service.call.should_rate_limit.service_error": s.ServiceError.Load(),
		"ratelimit.service.config_load_success":                  s.ConfigLoadSuccess.Load(),
		"ratelimit.service.config_load_error":                    s.ConfigLoadError.Load(),
		"ratelimit.service.global_shadow_mode":                   s.GlobalShadowMode.Load(),
		"ratelimit.service.domain_not_found":                     s.NotFound.Load(),
		"ratelimit.service.degraded":                             s.Degraded.Load(),
		"ratelimit.service.dynamic_names_left_out":               s.DynamicLeftOut.Load(),
		"ratelimit_server.ShouldRateLimit.total_requests":        s.TotalRequests.Load(),
	}
	// Several names may become the same when they are sanitized.
	for _, l := range s.all() {
		l.each(func(name string, value uint64) { all["ratelimit.service.rate_limit."+l.Name+"."+name] += value })
	}
	s.domains.Range(func(domain, count any) bool {
		all["ratelimit.service.rate_limit."+sanitize(domain.(string))+".domain_not_found"] += count.(*atomic.Uint64).Load()
		return true
	})
	for _, name := range slices.Sorted(maps.Keys(all)) {
		f(name, all[name])
	}
}

// WriteTo writes each counter as a line "NAME: VALUE".
func (s *Set) WriteTo(w io.Writer) (n int64, err error) {
	s.Each(func(name string, value uint64) {
		if err == nil {
			var some int
			some, err = fmt.Fprintf(w, "%s: %d\n", name, value)
			n += int64(some)
		}
	})
	return n, err
}

func (s *Set) all() (all []*Limit) {
	s.limits.Range(func(_, l any) bool {
		all = append(all, l.(*Limit))
		return true
	})
	return all
}
