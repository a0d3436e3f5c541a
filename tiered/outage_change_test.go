package tiered

import (
	"errors"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// What was granted in an outage is charged under the rule that is in force by then. The old rule would convert the key's
// state to its own algorithm, and the next decision would convert it back, which counts units that may be free.
func TestChargesAfterAChangeDenyNothing(t *testing.T) {
	t.Parallel()
	server, prefix := redistest.Start(t), redistest.Prefix()
	l := newLimiterOn(t, server.Client(t), prefix, Deadline(5*time.Second), RememberDenials(0))
	old := newRule(t, l, "r", limit.PerHour(100), Use(limit.GCRA()))
	server.Pause()
	l.shard.Breaker.ForceOpen(errors.New("lost"))
	mustAllow(t, old, "granted", 5)
	if err := old.ChargeUsed(t.Context(), "used", 5); err != nil {
		t.Fatal(err)
	}
	r, err := l.ChangeRule("r", limit.PerHour(100), Use(limit.SlidingLog()))
	if err != nil {
		t.Fatal(err)
	}
	server.Resume()
	redistest.Eventually(t, "Redis knows", func() bool { return l.State() != Outage && !l.shard.Owes() })
	for _, key := range []string{"granted", "used"} {
		if free := peekFrom(t, server, prefix, r, key); free != 95 {
			t.Errorf("%s: %d units are free with 5 used", key, free)
		}
	}
}
