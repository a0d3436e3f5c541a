package remote

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
)

// Law 7: no request blocks Redis for long. Since a log writes each unit, its size has a bound. A log of that size
// can run every operation, and a rule with a larger log is refused.
func TestLaw7LogsAreBounded(t *testing.T) {
	script := NewScript(redistest.Shared(t).Client(t))
	for _, test := range []struct {
		a    limit.Algorithm
		most int64
	}{{limit.SlidingLog(), lua.MaxLogUnits}, {limit.SlidingLogZSet(), lua.MaxLogZSetUnits}} {
		if _, err := NewRule(limit.PerHour(test.most+1), test.a); !errors.Is(err, limit.ErrInvalidAlgorithm) || !strings.Contains(err.Error(), "use a sliding counter or GCRA") {
			t.Errorf("%v of %d: %v", test.a, test.most+1, err)
		}
		l, key := limit.PerHour(test.most), redistest.Prefix()+"large"
		rule, wide := newRule(t, l, test.a), newRule(t, limit.Per(test.most, limit.MaxWindow), test.a)
		take := Entry{Key: key, Rule: rule, Cost: test.most}
		if work := take.work(); work != 100_000 {
			t.Errorf("%v: counted as %d units to write", test.a, work)
		}
		all := runAll(t, script, []Entry{take})[0]
		refund := Entry{Key: key, Rule: rule, Operation: lua.Refund, Cost: test.most / 2, Charged: test.most, Stamp: all.Stamp}
		for i, want := range []struct {
			e       Entry
			granted int64
			left    int64
		}{
			{take, 0, 0},
			{refund, test.most / 2, test.most / 2},
			{past(key, rule, 1, Charge{test.most, time.Minute}, Charge{test.most, time.Second}), 2 * test.most, 0},
			{Entry{Key: key, Rule: wide, Cost: test.most}, 0, 0},
			{Entry{Key: key, Rule: rule, Operation: lua.Forget}, 1, test.most},
		} {
			r := runAll(t, script, []Entry{want.e})[0]
			if r.Status == Unreadable || want.e.Operation != lua.Forget && r.Granted != want.granted || r.Remaining != want.left {
				t.Errorf("%v, %d: %+v", test.a, i, r)
			}
		}
		// After a change of algorithm the key has as many units as the log may hold, and no more.
		other := newRule(t, limit.PerDay(10*test.most), limit.FixedWindow())
		runAll(t, script, []Entry{{Key: key, Rule: other, Cost: 10 * test.most}})
		if r := runAll(t, script, []Entry{{Key: key, Rule: rule, Cost: 1}})[0]; r.Status != Denied || r.Remaining != 0 {
			t.Errorf("%v after a fixed window: %+v", test.a, r)
		}
	}
}
