package tiered

import (
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tierlimit/tierlimit/limit"
)

const (
	tiers = limit.TierOverload + 1

	// stripes keep cores from waiting for each other: a counter that two of them add to
	// all the time takes longer than all the rest of a decision in process.
	stripes   = 16
	cacheLine = 64
)

// outcome is what became of a request under one of its limits.
type outcome int

const (
	denied outcome = iota
	allowed
	heldBack // would not have denied, but another limit of the request did
	outcomes
)

// decisionCounts counts a rule's decisions by tier and outcome. The counts are spread
// over stripes of whole cache lines.
type decisionCounts [stripes]struct {
	of [tiers][outcomes]atomic.Uint64
	_  [(cacheLine - int(tiers)*int(outcomes)*8%cacheLine) % cacheLine]byte
}

func (c *decisionCounts) add(d *limit.Decision) {
	o := denied
	if d.Allowed {
		o = allowed
	} else if d.HeldBack {
		o = heldBack
	}
	c[stripe()].of[d.Tier][o].Add(1)
}

// sum is how many there were of a tier and outcome.
func (c *decisionCounts) sum(tier limit.Tier, o outcome) (n uint64) {
	for i := range c {
		n += c[i].of[tier][o].Load()
	}
	return n
}

// stripe is the same one for a goroutine most of the time, and for others mostly another:
// stacks lie 2 kB apart at least.
func stripe() uint64 {
	var onStack byte
	return uint64(uintptr(unsafe.Pointer(&onStack))>>11) * 0x9e3779b97f4a7c15 >> 60
}

// decisionsMetric is tierlimit_decisions_total, made of the rules' counts.
type decisionsMetric struct {
	desc    *prometheus.Desc
	created time.Time

	mu    sync.Mutex
	rules map[countedRule]*decisionCounts
}

type countedRule struct {
	name   string
	dryRun bool
}

func newDecisionsMetric() *decisionsMetric {
	return &decisionsMetric{
		desc: prometheus.NewDesc("tierlimit_decisions_total",
			"Decisions by rule, deciding tier (redis, local, lease, fallback, overload) and outcome (allowed, denied, held_back: not denied by this rule, but by another of the same request; of rules on a dry run would_allow, would_deny).",
			[]string{"rule", "tier", "outcome"}, nil),
		created: time.Now(),
		rules:   make(map[countedRule]*decisionCounts),
	}
}

// rule finds the counts of all rules of that name.
func (m *decisionsMetric) rule(name string, dryRun bool) *decisionCounts {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := countedRule{name, dryRun}
	if m.rules[r] == nil {
		m.rules[r] = new(decisionCounts)
	}
	return m.rules[r]
}

// Describe is of prometheus.Collector.
func (m *decisionsMetric) Describe(descs chan<- *prometheus.Desc) { descs <- m.desc }

// Collect is of prometheus.Collector.
func (m *decisionsMetric) Collect(metrics chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for rule, counts := range m.rules {
		names := []string{denied: "denied", allowed: "allowed", heldBack: "held_back"}
		if rule.dryRun { // is never held back: it is asked after the others have granted
			names = []string{denied: "would_deny", allowed: "would_allow"}
		}
		for tier := range tiers {
			for o, name := range names {
				metrics <- prometheus.MustNewConstMetricWithCreatedTimestamp(m.desc, prometheus.CounterValue,
					float64(counts.sum(tier, outcome(o))), m.created, rule.name, tier.String(), name)
			}
		}
	}
}
