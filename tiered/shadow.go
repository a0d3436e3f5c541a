package tiered

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/tierlimit/tierlimit/internal/option"
	"github.com/tierlimit/tierlimit/internal/outage"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/remote"
)

// Shadow lets a part of the rule's keys, above 0 and up to 1, also run the exact log,
// and counts how often it would have decided otherwise: the live error of the rule's
// approximation, see [ShadowStats]. Nothing else
// depends on it: it is asked after the decision was made, in trips of its own, by one
// goroutine; what that does not keep up with is left out, and counted. Of a rule that
// is a log itself there is nothing to compare. The limit must be one that a log can hold: at most
// 100,000 units.
//
// Which keys are in the sample is the same in all instances of a fleet. Each takes the
// memory of a log in Redis, see [plan.Candidate.Bytes], and one more decision of
// Redis's time per request. The sample is no secret: a client that can choose keys can choose
// sampled ones.
//
// Compared are [Rule.Allow], [Rule.AllowN] and [Rule.Wait], while Redis decides. The
// log does not learn of units that were charged or given back otherwise; do not use
// the numbers of rules with many of those. It is asked some milliseconds late, which
// makes decisions differ that are so close.
func Shadow(part float64) RuleOption {
	return func(c *ruleConfig) error {
		if !(part > 0 && part <= 1) {
			return option.Invalid("shadow of %v of the keys, must be a part above 0 and up to 1", part)
		}
		c.shadow = part
		return nil
	}
}

const (
	// shadowQueue is how many comparisons may wait: some hundred kB at most.
	shadowQueue = 1024
	// shadowBatch is how many go in one trip, so that none holds Redis for long.
	shadowBatch = 16
)

// shadow compares a rule's decisions with the exact log's, for a sample of its keys.
type shadow struct {
	limiter   *Limiter
	name      string
	encoded   *remote.Rule
	quota     int64
	salt      uint64
	threshold uint64 // keys whose salted hash is up to it are in the sample

	*shadowCounts
}

// shadowCounts are the results of comparisons.
type shadowCounts struct {
	agreed, wronglyAllowed, wronglyDenied counter
	full, failed                          counter // comparisons left out
}

// newShadow returns nil if the rule has no shadow.
func (l *Limiter) newShadow(name string, lim limit.Limit, a limit.Algorithm, part float64) (*shadow, error) {
	if part == 0 || a.Same(limit.SlidingLog()) {
		return nil, nil
	}
	encoded, err := remote.NewRule(lim, limit.SlidingLog())
	if err != nil {
		return nil, fmt.Errorf("shadow of rule %q: %w", name, err)
	}
	l.shadows.Do(func() { l.background.Go(l.compareAll) })
	return &shadow{
		limiter:      l,
		name:         name + "~log", // no rule can have this name
		encoded:      encoded,
		quota:        lim.Quota(),
		salt:         xxhash.Sum64String(name),
		threshold:    uint64(part * math.Nextafter(1<<64, 0)),
		shadowCounts: l.metrics.shadow(name),
	}, nil
}

// comparison is a decision to be compared.
type comparison struct {
	shadow  *shadow
	shard   *outage.Shard
	key     string // in Redis
	cost    int64
	allowed bool
	clock   int64 // virtual time of the decision; 0 for Redis's own
}

// compare has a decision compared later, if its key is in the sample. It never waits.
func (s *shadow) compare(key *callKey, cost int64, d *limit.Decision) {
	if s == nil || d.Degraded() || cost > s.quota || !s.sampled(key.said) {
		return // a cost above the limit, as a large burst grants, is none that a log knows
	}
	c := comparison{shadow: s, shard: s.limiter.shardOf(key), key: s.limiter.keys.Key(s.name, key.inRedis()), cost: cost, allowed: d.Allowed}
	if virtual := s.limiter.config.virtualClock; virtual != nil {
		c.clock = virtual().UnixMicro()
	}
	select {
	case s.limiter.comparisons <- c:
	default:
		s.full.Inc()
	}
}

// sampled is the same in every process, unlike what the hasher of this one says. Two
// rules sample different keys.
func (s *shadow) sampled(key string) bool {
	return xxhash.Sum64String(key)^s.salt <= s.threshold
}

// compareAll runs until the limiter is closed.
func (l *Limiter) compareAll() {
	script := remote.NewScript(l.client)
	for {
		select {
		case <-l.ctx.Done():
			return
		case first := <-l.comparisons:
			l.compareBatch(script, l.more(first))
		}
	}
}

// more adds what waits already. Virtual time differs from one to the next.
func (l *Limiter) more(first comparison) []comparison {
	batch := []comparison{first}
	for first.clock == 0 && len(batch) < shadowBatch {
		select {
		case next := <-l.comparisons:
			batch = append(batch, next)
		default:
			return batch
		}
	}
	return batch
}

// compareBatch asks the exact log. Errors are counted and nothing more: whether Redis
// is lost is for users' decisions to find out.
func (l *Limiter) compareBatch(script *remote.Script, batch []comparison) {
	batch = slices.DeleteFunc(batch, func(c comparison) bool {
		if c.shard.Breaker.Closed() {
			return false
		}
		c.shadow.failed.Inc()
		return true
	})
	if len(batch) == 0 {
		return
	}
	entries := make([]remote.Entry, len(batch))
	for i, c := range batch {
		entries[i] = remote.Entry{Key: c.key, Rule: c.shadow.encoded, Cost: c.cost}
	}
	ctx, cancel := context.WithTimeout(l.ctx, l.config.deadline)
	defer cancel()
	replies, err := script.Run(ctx, entries, batch[0].clock)
	for i, c := range batch {
		switch {
		case err != nil || replies[i].Err != nil || replies[i].Status == remote.Unreadable:
			c.shadow.failed.Inc()
		default:
			c.shadow.count(c.allowed, replies[i].Status == remote.Allowed)
		}
	}
}

func (s *shadow) count(allowed, right bool) {
	switch {
	case allowed == right:
		s.agreed.Inc()
	case allowed:
		s.wronglyAllowed.Inc()
	default:
		s.wronglyDenied.Inc()
	}
}
