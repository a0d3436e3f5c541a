package conformance

import (
	"time"

	"pgregory.net/rapid"

	"github.com/tierlimit/tierlimit/internal/model"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// leases checks one lease after another around the moments when they end, with a clock that steps back and a key
// that is forgotten in between.
func (s suite) leases(t *rapid.T) {
	a := drawAlgorithm.Draw(t, "algorithm")
	l := limit.Per(rapid.Int64Range(10, 200).Draw(t, "quota"), 10*time.Second)
	rule, reference := newPair(t, l, a)
	key, now, last := s.newKey(), int64(epoch), uint64(0)
	for range rapid.IntRange(1, 40).Draw(t, "leases") {
		life := rapid.SampledFrom([]int64{300_000, lua.LongestLease}).Draw(t, "life")
		switch rapid.IntRange(0, 9).Draw(t, "gap") {
		case 0, 1, 2:
			now += life + rapid.Int64Range(-1, 1).Draw(t, "edge")
		case 3, 4, 5:
			now += rapid.Int64Range(0, life).Draw(t, "within")
		case 6:
			now -= rapid.Int64Range(1, 5_000_000).Draw(t, "back")
		case 7:
			reference.Forget(now)
			s.run(t, []remote.Entry{{Key: key, Rule: rule, Operation: lua.Forget, Cost: 1}}, now)
		}
		terms := model.Terms{ID: last + 1, Over: rapid.Uint64Range(0, last).Draw(t, "over"), Life: life}
		terms.Most = rapid.Int64Range(0, l.Quota()/2).Draw(t, "most on lease")
		wanted := rapid.Int64Range(0, 20).Draw(t, "wanted")
		last++
		e := remote.Entry{Key: key, Rule: rule, Operation: lua.Lease, Cost: wanted, Lease: &remote.Lease{
			ID: terms.ID, Over: terms.Over, Most: terms.Most, Life: time.Duration(life) * time.Microsecond,
		}}
		s.check(t, e, now, reference.Lease(now, wanted, terms))
	}
}
