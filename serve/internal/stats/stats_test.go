package stats

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// The number of names made from requests is bounded. Further hits are counted under another name.
func TestDynamicNamesAreBounded(t *testing.T) {
	var s Set
	otherwise := s.Limit("d.k")
	for i := range MaxDynamic + 10 {
		s.Dynamic(fmt.Sprint("d.k_", i), otherwise).TotalHits.Add(1)
		s.DomainNotFound(fmt.Sprint(i), 1)
	}
	if n := otherwise.TotalHits.Load(); n != 10 || s.DynamicLeftOut.Load() != 10 {
		t.Errorf("%d hits beside %d names, %d left out", n, MaxDynamic, s.DynamicLeftOut.Load())
	}
	s.Dynamic("d.k_0", otherwise).TotalHits.Add(1)
	if n := s.Limit("d.k_0").TotalHits.Load(); n != 2 {
		t.Errorf("%d hits of a known name", n)
	}
	lines := 0
	s.Each(func(string, uint64) { lines++ })
	if most := 6*(MaxDynamic+1) + maxDomains + 20; lines > most {
		t.Errorf("%d lines, want %d at most", lines, most)
	}
}

// Names longer than longestName are not kept.
func TestLongNamesAreNotKept(t *testing.T) {
	var s Set
	otherwise := s.Limit("d.k")
	s.Dynamic("d.k_"+strings.Repeat("x", longestName), otherwise).TotalHits.Add(1)
	s.DomainNotFound(strings.Repeat("x", longestName+1), 1)
	if otherwise.TotalHits.Load() != 1 || s.DynamicLeftOut.Load() != 1 || s.NotFound.Load() != 1 {
		t.Errorf("%d hits, %d left out, %d not found", otherwise.TotalHits.Load(), s.DynamicLeftOut.Load(), s.NotFound.Load())
	}
	s.Each(func(name string, _ uint64) {
		if len(name) > longestName {
			t.Errorf("a name of %d bytes", len(name))
		}
	})
}

// The number of names of former configurations is bounded, however often the configuration changes. Names of the
// current one are not bounded. Counts stay in the exported sums.
func TestNamesOfFormerConfigurationsAreBounded(t *testing.T) {
	var s Set
	const each = 1_000
	for version := range 30 {
		limits := []*Limit{s.Limit("d.stays.k")}
		for i := range each {
			limits = append(limits, s.Limit(fmt.Sprintf("d.stays.k.v%d_%d", version, i)))
		}
		for _, l := range limits {
			l.TotalHits.Add(1)
		}
		s.InForce(limits)
		s.InForce(limits)
	}
	lines := 0
	hits := make(map[string]uint64)
	s.Each(func(name string, value uint64) { lines, hits[name] = lines+1, value })
	if most := 6*(maxRetired+each+1) + 20; lines > most {
		t.Errorf("%d lines, want %d at most", lines, most)
	}
	for name, want := range map[string]uint64{"d.stays.k": 30, "d.stays.k.v29_0": 1, "d.stays.k.v20_7": 1, "d.stays.k.v5_0": 0} {
		if got := hits["ratelimit.service.rate_limit."+name+".total_hits"]; got != want {
			t.Errorf("%s: %d hits, want %d", name, got, want)
		}
	}
	series := func() float64 { return seriesOf(t, &s, "ratelimit_service_rate_limit_total_hits")["d stays k "] }
	if sum := series(); sum != 30*(each+1) {
		t.Errorf("a sum of %v", sum)
	}
	// If a name comes back, its count continues.
	again := s.Limit("d.stays.k.v25_1")
	again.TotalHits.Add(1)
	if n := again.TotalHits.Load(); n != 2 {
		t.Errorf("%d hits", n)
	}
	// A series ends when none of its names is kept any more.
	for version := range 30 {
		limits := []*Limit{}
		for i := range each {
			limits = append(limits, s.Limit(fmt.Sprintf("e.k%d_%d", version, i)))
		}
		s.InForce(limits)
	}
	if sum := series(); sum != 0 || len(s.gone) > 0 {
		t.Errorf("a sum of %v, and %d that have ended", sum, len(s.gone))
	}
}

// Sums that have ended are forgotten although nobody reads the metrics, as where statsd is used.
func TestSumsThatHaveEndedAreForgottenUnread(t *testing.T) {
	var s Set
	const each, versions = 1_000, 15
	for version := range versions {
		limits := []*Limit{s.Limit("d.stays.k"), s.Limit(fmt.Sprint("d.stays.k.v", version))}
		for i := range each {
			limits = append(limits, s.Limit(fmt.Sprintf("d.k%d_%d", version, i)))
		}
		for _, l := range limits {
			l.TotalHits.Add(1)
		}
		s.InForce(limits)
	}
	if n := len(s.gone); n != 1 {
		t.Errorf("%d sums are kept for names that are not, want that of d.stays.k", n)
	}
	if sum := seriesOf(t, &s, "ratelimit_service_rate_limit_total_hits")["d stays k "]; sum != 2*versions {
		t.Errorf("a sum of %v, want %d", sum, 2*versions)
	}
}

// seriesOf returns the values of a metric, by their label values.
func seriesOf(t *testing.T, s *Set, metric string) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(s)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		if f.GetName() != metric {
			continue
		}
		for _, m := range f.GetMetric() {
			key := ""
			for _, l := range m.GetLabel() {
				key += l.GetValue() + " "
			}
			got[key] = m.GetCounter().GetValue()
		}
	}
	return got
}

// Names that become equal when they are sanitized are one counter with the hits of all, as in envoyproxy/ratelimit.
func TestNamesThatAreOne(t *testing.T) {
	var s Set
	for i, name := range []string{"d.k_a:b", "d.k_a|b", "d.k_a_b"} {
		s.Dynamic(name, nil).TotalHits.Add(1 << i)
	}
	s.DomainNotFound("x:y", 1)
	s.DomainNotFound("x_y", 2)
	got := make(map[string]uint64)
	s.Each(func(name string, value uint64) { got[name] = value })
	if hits, notFound := got["ratelimit.service.rate_limit.d.k_a_b.total_hits"], got["ratelimit.service.rate_limit.x_y.domain_not_found"]; hits != 7 || notFound != 3 {
		t.Errorf("%d hits, %d not found", hits, notFound)
	}
}

// Clients choose values and domains. What ends a line for a statsd server, or is a command to a terminal, is replaced.
func TestControlCharactersInNames(t *testing.T) {
	var s Set
	s.Dynamic("d.k_a\nb\r\tc\x1b[2Jd\u009be", nil).TotalHits.Add(1)
	s.DomainNotFound("x\x1b]0;y\x07\nz:1|c", 2)
	got := make(map[string]uint64)
	s.Each(func(name string, value uint64) { got[name] = value })
	for name, want := range map[string]uint64{"d.k_a_b__c_[2Jd_e.total_hits": 1, "x_]0;y__z_1_c.domain_not_found": 2} {
		if got["ratelimit.service.rate_limit."+name] != want {
			t.Errorf("%s is not in %q", name, slices.Sorted(maps.Keys(got)))
		}
	}
}

// Paths with the same first two descriptors are one series. Addresses in names do not split them, and invalid UTF-8
// is replaced.
func TestPrometheus(t *testing.T) {
	var s Set
	for _, name := range []string{"d.a_1.b.c", "d.a_1.b.d", "d.ip_10.0.0.1", "d", "\xff.k"} {
		s.Limit(name).TotalHits.Add(2)
	}
	s.Limit("d.unused")
	got := seriesOf(t, &s, "ratelimit_service_rate_limit_total_hits")
	if _, shown := got["d unused  "]; shown {
		t.Error("a limit that nobody has asked for is shown")
	}
	if over, shown := seriesOf(t, &s, "ratelimit_service_rate_limit_over_limit")["d a_1 b "]; !shown || over != 0 {
		t.Error("one that has been asked for is not shown with all its counters")
	}
	for key, want := range map[string]float64{"d a_1 b ": 4, "d ip_10_0_0_1  ": 2, "d   ": 2, "? k  ": 2} {
		if got[key] != want {
			t.Errorf("%q: %v, want %v", key, got[key], want)
		}
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(&s)
	if problems, err := testutil.GatherAndLint(registry); err != nil {
		t.Error(problems, err)
	}
}

// A name that several requests bring for the first time at once takes the room of one name.
func TestNamesThatAreNewToSeveralRequests(t *testing.T) {
	var s Set
	otherwise := s.Limit("d.k")
	const names = 300
	begin := make(chan struct{})
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			<-begin
			for i := range names {
				s.Dynamic(fmt.Sprint("d.k_", i), otherwise)
				s.DomainNotFound(fmt.Sprint(i), 1)
			}
		})
	}
	close(begin)
	all.Wait()
	if dynamic, domains := s.dynamic.Load(), s.domainsKnown.Load(); dynamic != names || domains != names {
		t.Errorf("%d names take the room of %d, and as many domains that of %d", names, dynamic, domains)
	}
}
