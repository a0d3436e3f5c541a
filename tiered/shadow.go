package tiered

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"github.com/tierlimit/tierlimit/internal/option"
	"github.com/tierlimit/tierlimit/internal/outage"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// Shadow also decides requests for a part of the rule's keys, above 0 and up to 1, by the exact log, and
// counts how often the log decides differently. This measures the error of the rule's algorithm in
// production; see [ShadowStats]. Shadow does not affect decisions: one goroutine asks the log after the
// decision was made, in separate trips. Comparisons that it cannot keep up with are left out and counted.
// If the rule uses a log itself, there is nothing to compare. The limit, also one of [Rule.WithLimit], must be at most
// 100,000 units and not a calendar limit, because a log counts no others.
//
// All instances of a fleet sample the same keys. Each sampled key takes the memory of a log in Redis (see
// [plan.Candidate.Bytes]), and the time of one more decision per request. The sample is not secret: a
// client that can choose keys can choose sampled ones.
//
// Shadow compares [Rule.Allow], [Rule.AllowN], [Rule.Wait] and [Limiter.AllowEach], while Redis decides.
// The log does not count units that were charged or given back in other ways, so the numbers are wrong for
// rules with many such units. The log is asked some milliseconds late. So decisions within that time after
// a change may differ.
func Shadow(part float64) RuleOption {
	return option.Set(func(c *ruleConfig) { c.shadow = part },
		part > 0 && part <= 1, "Shadow of %v, must be the part of the keys to compare, above 0 and up to 1", part)
}

const (
	// shadowQueue is the number of comparisons that may wait. They take at most some hundred kB.
	shadowQueue = 1024
	// shadowBatch is the number of comparisons per trip. It is small, so that no trip blocks Redis for
	// long.
	shadowBatch = 16
)

// shadow compares a rule's decisions with the exact log's, for a sample of its keys.
type shadow struct {
	limiter   *Limiter
	encoded   *remote.Rule
	quota     int64
	salt      uint64
	threshold uint64 // keys whose salted hash is at most this are sampled

	*shadowCounts
}

// shadowCounts are the results of comparisons.
type shadowCounts struct {
	agreed, wronglyAllowed, wronglyDenied atomic.Uint64
	full, failed                          atomic.Uint64 // comparisons left out
}

// newShadow makes the shadow of a rule. It returns nil if the rule has none.
func (l *Limiter) newShadow(r *Rule) (*shadow, error) {
	if r.config.shadow == 0 || r.algorithm.Same(limit.SlidingLog()) {
		return nil, nil
	}
	encoded, err := remote.NewRule(r.limit, limit.SlidingLog())
	if err != nil {
		return nil, fmt.Errorf("rule %q: %w: Shadow compares with the exact log, which counts at most %d units, and no calendar windows; the limit is %v", r.name, limit.ErrInvalidAlgorithm, lua.MaxLogUnits, r.given)
	}
	l.shadows.Do(func() { l.background.Go(l.compareAll) })
	r.counters.shadowed.Store(true)
	return &shadow{
		limiter:      l,
		encoded:      encoded.Named(l.keys, r.name+"~log", nil), // no rule can have this name
		quota:        r.limit.Quota(),
		salt:         xxhash.Sum64String(r.name),
		threshold:    uint64(r.config.shadow * math.Nextafter(1<<64, 0)),
		shadowCounts: &r.counters.shadow,
	}, nil
}

// comparison is a decision that is to be compared with the exact log's.
type comparison struct {
	shadow  *shadow
	shard   *outage.Shard
	key     remote.UserKey
	cost    int64
	allowed bool
	clock   int64 // virtual time of the decision; 0 for Redis's own
}

// compare queues a decision for comparison, if its key is in the sample. It never waits.
func (s *shadow) compare(key *callKey, cost int64, d *limit.Decision) {
	if s == nil || d.Degraded() || cost > s.quota || !s.sampled(key.original) {
		return // a large burst may grant a cost above the limit, which a log cannot decide
	}
	c := comparison{shadow: s, shard: s.limiter.shardOf(key), key: key.kept().name, cost: cost, allowed: d.Allowed}
	if virtual := s.limiter.batching.VirtualClock; virtual != nil {
		c.clock = virtual()
	}
	select {
	case s.limiter.comparisons <- c:
	default:
		s.full.Add(1)
	}
}

// sampled reports whether a key is in the sample. It returns the same result in every process, because it
// does not use this process's hasher. Different rules sample different keys.
func (s *shadow) sampled(key string) bool {
	return xxhash.Sum64String(key)^s.salt <= s.threshold
}

// compareAll runs until the limiter is closed. In virtual time it makes each comparison by itself, because
// each may have another time.
func (l *Limiter) compareAll() {
	for {
		select {
		case <-l.ctx.Done():
			return
		case first := <-l.comparisons:
			batch := []comparison{first}
			for first.clock == 0 && len(batch) < shadowBatch && len(l.comparisons) > 0 {
				batch = append(batch, <-l.comparisons) // does not wait, because nobody else receives
			}
			l.compareBatch(batch)
		}
	}
}

// compareBatch asks the exact log. It only counts errors, and does not report them to the breaker: users'
// decisions determine whether Redis is lost.
func (l *Limiter) compareBatch(batch []comparison) {
	batch = slices.DeleteFunc(batch, func(c comparison) bool {
		if c.shard.Breaker.Closed() {
			return false
		}
		c.shadow.failed.Add(1)
		return true
	})
	if len(batch) == 0 {
		return
	}
	entries := make([]remote.Entry, len(batch))
	for i, c := range batch {
		entries[i] = remote.Entry{Key: string(c.key), Rule: c.shadow.encoded, Cost: c.cost}
	}
	ctx, cancel := context.WithTimeout(l.ctx, l.config.deadline)
	defer cancel()
	replies, err := l.script.Run(ctx, entries, batch[0].clock)
	for i, c := range batch {
		right := err == nil && replies[i].Status == remote.Allowed
		switch {
		case err != nil || replies[i].Err != nil || replies[i].Status == remote.Unreadable:
			c.shadow.failed.Add(1)
		case c.allowed == right:
			c.shadow.agreed.Add(1)
		case c.allowed:
			c.shadow.wronglyAllowed.Add(1)
		default:
			c.shadow.wronglyDenied.Add(1)
		}
	}
}
