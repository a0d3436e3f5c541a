package tiered

import (
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// A settlement is not sent while Redis may still charge the hold's units. Otherwise they would be charged after it, and
// nobody would settle them. The settlements behind it do not wait.
func TestSettlementsAreSentAfterTheLastMomentOfTheirHold(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	r := newRule(t, l, "r", limit.PerMinute(10))
	key := l.key("k")
	later, now := r.cancelling(&key, 1), r.cancelling(&key, 2)
	later.settledFrom = l.now() + int64(time.Hour)
	now.settledFrom = l.now()
	k := &l.holds
	k.waiting = []settlement{later, now}
	if batch := k.sendable(l); len(batch) != 1 || batch[0].units != 2 || len(k.waiting) != 1 || k.waiting[0].units != 1 {
		t.Errorf("sent %+v, and kept %+v", batch, k.waiting)
	}
	k.waiting = nil
}
