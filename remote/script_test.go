package remote

import (
	"context"
	"strconv"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// epoch is the virtual time at which these tests begin: an arbitrary moment of 2026.
const epoch = 1_790_123_456_789_012

// decide runs one entry at a moment of virtual time.
func decide(t testing.TB, s *Script, key string, rule *Rule, at, cost int64) Reply {
	t.Helper()
	replies, err := s.Run(context.Background(), []Entry{{Key: key, Rule: rule, Cost: cost}}, at)
	if err != nil {
		t.Fatal(err)
	}
	return replies[0]
}

func newRule(t rapid.TB, l limit.Limit, a limit.Algorithm) *Rule {
	t.Helper()
	rule, err := NewRule(l, a)
	if err != nil {
		t.Fatalf("%v under %v: %v", l, a, err)
	}
	return rule
}

// A node of a Cluster refuses a call with keys of several slots. The refusal proves that nothing ran, and the
// entries are sent again, divided by slot. So are the entries of other calls that were in flight at the time.
func TestAClientOfOneNodeDividesBySlotOnceRefused(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 1)
	client := redis.NewClient(&redis.Options{Addr: cluster.Addrs()[0], ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	rule := newRule(t, limit.PerHour(1000), limit.GCRA())
	script := NewScript(client)
	script.HoldConnections()
	defer script.ReturnIdleConnections()
	entries := func() []Entry {
		var several []Entry
		for i := range 20 {
			several = append(several, Entry{Key: "tl:{" + strconv.Itoa(i) + "}:r", Rule: rule, Cost: 1})
		}
		return several
	}
	const calls = 8
	var all sync.WaitGroup
	for range calls {
		all.Go(func() {
			replies, err := script.Run(context.Background(), entries(), 0)
			if err != nil {
				t.Error(err)
				return
			}
			for i, r := range replies {
				if r.Err != nil || r.Status != Allowed {
					t.Errorf("entry %d: %+v", i, r)
				}
			}
		})
	}
	all.Wait()
	if !script.bySlot.Load() {
		t.Error("calls are not divided by slot")
	}
	for _, e := range entries() {
		if r := decide(t, script, e.Key, rule, 0, 1); r.Remaining < 1000-calls-1 || r.Remaining > 1000-calls {
			t.Errorf("%s: %d remain, want %d: each entry is charged once", e.Key, r.Remaining, 1000-calls-1)
		}
	}
}
