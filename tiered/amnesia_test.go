package tiered

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/local"
	"github.com/tierlimit/tierlimit/remote"
)

// Law 11: a Redis that has forgotten everything grants no second quota: what this
// instance granted is charged once more after each key's next use, and until a window
// has passed its share must agree.
func TestLaw11FlushedRedisGrantsNoSecondQuota(t *testing.T) {
	t.Parallel()
	server, prefix := redistest.Start(t), redistest.Prefix()
	l := newLimiterOn(t, server.Client(t), prefix, Deadline(5*time.Second), RememberDenials(0))
	r := newRule(t, l, "r", limit.PerHour(100))
	mustAllow(t, r, "k", 80)
	mustAllow(t, r, "not used again", 80)
	if err := server.Client(t).FlushAll(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is noticed", func() bool { return l.State() == Settling })
	if n := l.Stats().MemoryLosses; n != 1 {
		t.Errorf("%v losses of memory", n)
	}
	if d := mustAllow(t, r, "k", 5); !d.Allowed || d.Tier != limit.TierRedis {
		t.Fatalf("%+v", d)
	}
	if d := mustAllow(t, r, "k", 16); d.Allowed || d.Tier != limit.TierFallback {
		t.Fatalf("%+v", d)
	}
	eventually(t, "it is charged", func() bool { return !l.shard.owes() && l.Stats().ChargedBackUnits > 0 })
	mustAllow(t, r, "k", 1)
	eventually(t, "nothing is to be charged again", func() bool { return !l.shard.owes() })
	if k, other := peekFrom(t, server, prefix, r, "k"), peekFrom(t, server, prefix, r, "not used again"); k != 14 || other != 100 {
		t.Errorf("%d and %d remain in Redis, want 14 and 100", k, other)
	}
	if l.State() != Settling {
		t.Errorf("%v before a window has passed", l.State())
	}
}

// A reply that counts less than this instance was granted brings the next heartbeat on at
// once.
func TestForgetfulReplyIsFollowedByABeat(t *testing.T) {
	server := redistest.Start(t)
	l := newLimiterOn(t, server.Client(t), redistest.Prefix())
	r := newRule(t, l, "r", limit.PerHour(100))
	a := r.account(keyOf(l, "k"))
	l.ledger.Add(&a, l.now(), 50)
	l.learn(r, keyOf(l, "k"), &remote.Reply{Granted: 1, Remaining: 60})
	if len(l.shard.suspicions) != 0 {
		t.Error("suspicion where Redis counts 40 of 51")
	}
	reply := &remote.Reply{Granted: 1, Remaining: 99}
	l.learn(r, keyOf(l, "k"), reply)
	if s := len(l.shard.suspicions); s == 0 && l.State() == Healthy {
		// The keeper may have taken it already: then it beats.
		eventually(t, "a suspicion", func() bool {
			l.learn(r, keyOf(l, "k"), reply)
			return len(l.shard.suspicions) > 0
		})
	}
}

func TestMemory(t *testing.T) {
	m := &memory{}
	for i, step := range []struct {
		heard     remote.Heard
		sent      int64
		remembers bool
		since     int64
	}{
		{remote.Heard{Generation: "a", Sequence: 1, Survived: -1}, 100, true, 0},
		{remote.Heard{Generation: "a", Sequence: 2, Survived: 1}, 200, true, 0},
		{remote.Heard{Generation: "a", Sequence: 3, Survived: 2}, 300, true, 0},
		{remote.Heard{Generation: "a", Sequence: 5, Survived: 4}, 500, true, 0},    // a reply was lost
		{remote.Heard{Generation: "a", Sequence: 6, Survived: 3}, 600, false, 300}, // a replica that was behind
		{remote.Heard{Generation: "a", Sequence: 7, Survived: 6}, 700, true, 0},    // and goes on
		{remote.Heard{Generation: "a", Sequence: 8, Survived: -1}, 800, true, 0},   // no beat for a day
		{remote.Heard{Generation: "b", Sequence: 9, Survived: -1}, 900, false, math.MinInt64},
		{remote.Heard{Generation: "b", Sequence: 10, Survived: 9}, 1000, true, 0},
		{remote.Heard{Generation: "b", Sequence: 11, Survived: 2}, 1100, false, math.MinInt64},     // further back than is known
		{remote.Heard{Place: "moved", Generation: "c", Sequence: 12, Survived: -1}, 1200, true, 0}, // the fleet meets elsewhere
		{remote.Heard{Place: "moved", Generation: "d", Sequence: 13, Survived: -1}, 1300, false, math.MinInt64},
		{remote.Heard{Generation: "b", Sequence: 14, Survived: 11}, 1400, true, 0}, // and again where it was
	} {
		remembers, since := m.remembers(step.heard, step.sent)
		if remembers != step.remembers || since != step.since {
			t.Errorf("step %d: %v, since %d; want %v, %d", i, remembers, since, step.remembers, step.since)
		}
	}
	for i := range int64(1000) {
		m.remembers(remote.Heard{Generation: "b", Sequence: 15 + i, Survived: 14 + i}, 1500)
	}
	if len(m.beats) > beatsKept {
		t.Errorf("%d beats are kept", len(m.beats)) // law 7
	}
}

// Law 11: under GCRA the debt of what was granted is charged, as this instance's share of
// the rate would have it: of units paid off meanwhile there is none.
func TestGCRADebts(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	r := newRule(t, l, "r", limit.Per(1000, 100*time.Second), Use(limit.GCRA()))
	const second = int64(time.Second)
	parts := []local.Part{{Units: 80, At: 100 * second}, {Units: 30, At: 110 * second}}
	for _, test := range []struct {
		share float64
		fleet int
		at    int64
		want  int64
	}{{1, 9, 110, 30}, {1, 9, 112, 10}, {1, 9, 113, 0}, {0.5, 9, 110, 60}, {0, 4, 110, 85}, {0, 4, 130, 35}} {
		d := local.Debt{Owner: r, Key: "k", Share: test.share, Parts: parts}
		units := int64(0)
		for _, c := range r.charges(d, test.at*second, test.fleet) {
			units += c.Units
			if c.Age != 0 {
				t.Errorf("%+v: age %v", test, c.Age)
			}
		}
		if units != test.want {
			t.Errorf("%+v: %d units", test, units)
		}
	}
}
