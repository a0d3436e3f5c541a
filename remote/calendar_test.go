package remote

import (
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
)

// Calendar windows follow Redis's clock. A rule that gives unsettled holds back shares its keys with the rule that
// it is a copy of.
func TestCalendarRulesThatGiveBack(t *testing.T) {
	script, key := NewScript(redistest.Shared(t).Client(t)), redistest.Prefix()+"month"
	l := limit.PerCalendar(10, limit.CalendarMonth, time.UTC)
	rule := newRule(t, l, limit.FixedWindow())
	givesBack := rule.GivesBack()
	for i, r := range []*Rule{rule, givesBack, rule, givesBack} {
		reply := runAll(t, script, []Entry{{Key: key, Rule: r, Cost: 1}})[0]
		_, end := l.Calendar(time.UnixMicro(reply.Clock))
		if want := end.Sub(time.UnixMicro(reply.Clock)); reply.Remaining != int64(9-i) || reply.ResetAfter != want {
			t.Fatalf("call %d: %+v, want %d remaining, and all units in %v", i, reply, 9-i, want)
		}
	}
	hold := holdEntry(key, givesBack, lua.Hold, 1, 4)
	hold.Hold.Life = time.Millisecond
	runAll(t, script, []Entry{hold})
	redistest.Eventually(t, "the hold has been given back", func() bool {
		runAll(t, script, []Entry{{Key: key, Rule: rule, Operation: lua.Peek, Cost: 1}})
		return runAll(t, script, []Entry{{Key: key, Rule: givesBack, Operation: lua.Peek, Cost: 1}})[0].Remaining == 6
	})
}
