package conformance

import (
	"pgregory.net/rapid"

	"github.com/tierlimit/tierlimit/internal/model"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// terms are a limit and its algorithm.
type terms struct {
	limit     limit.Limit
	algorithm limit.Algorithm
}

// alternating checks batches in which keys come again and again, but never twice in a row, under one or several rules,
// with a denial every few entries. The script keeps what it has read and computed for an entry, also for requests that
// it decides on a short path; an entry must be decided by what the key holds then, and not by what was kept.
func (s suite) alternating(t *rapid.T) {
	histories := make([]*history, rapid.IntRange(2, 3).Draw(t, "keys"))
	rules := make([][]terms, len(histories))
	for i := range histories {
		histories[i] = &history{key: s.newKey(), sequences: make(map[string]int64)}
		a := drawPlainAlgorithm.Draw(t, "algorithm")
		for range rapid.SampledFrom([]int{1, 1, 2, 3}).Draw(t, "rules") {
			if rapid.IntRange(0, 3).Draw(t, "other algorithm") == 0 {
				a = drawPlainAlgorithm.Draw(t, "algorithm")
			}
			rules[i] = append(rules[i], terms{drawPlainLimit(t, a), a})
		}
	}
	now := int64(epoch)
	for range rapid.IntRange(1, 4).Draw(t, "batches") {
		window := rules[0][0].limit.Window().Microseconds()
		now += rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, window)).Draw(t, "gap")
		var entries []remote.Entry
		var expected []model.Outcome
		var of []*history
		next := 0
		for range rapid.IntRange(10, 30).Draw(t, "entries") {
			next = (next + rapid.IntRange(1, len(histories)-1).Draw(t, "key")) % len(histories)
			h := histories[next]
			rule := rapid.SampledFrom(rules[next]).Draw(t, "rule")
			if rule != (terms{h.limit, h.algorithm}) {
				h.use(t, rule.limit, rule.algorithm)
			}
			capacity := h.algorithm.Capacity(h.limit)
			// A cost of the whole capacity is denied, and leaves room for others.
			cost := rapid.OneOf(drawUnits(capacity), rapid.Just(int64(1)), rapid.Just(capacity)).Draw(t, "cost")
			operation := rapid.SampledFrom([]int{lua.Take, lua.Take, lua.Take, lua.Take, lua.Take, lua.TakeUpTo, lua.Peek, lua.Peek, lua.Refund}).Draw(t, "operation")
			e, expect := h.entry(t, operation, cost)
			entries, expected, of = append(entries, e), append(expected, expect(now)), append(of, h)
		}
		for i, reply := range s.checkAll(t, entries, now, expected) {
			of[i].remember(entries[i], reply)
		}
	}
}
