package remote

import (
	"testing"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
)

// The script finds the id of a hold that is sent alone, however many units are held and used: a cost above 255 takes
// more bytes, and the id comes after it.
func TestALoneHoldOfManyUnits(t *testing.T) {
	script := NewScript(redistest.Shared(t).Client(t))
	for _, a := range configurations() {
		rule, key := newRule(t, limit.PerDay(4000).WithBurst(4000), a), redistest.Prefix()+"many"
		one := func(e Entry) Reply {
			t.Helper()
			return runAll(t, script, []Entry{e})[0]
		}
		one(Entry{Key: key, Rule: rule, Cost: 1}) // so that settlements leave something
		for id, test := range []struct{ held, used int64 }{{1000, 600}, {1000, 7}, {200, 100}} {
			one(holdEntry(key, rule, lua.Hold, uint64(id)+1, test.held))
			if r := one(holdEntry(key, rule, lua.Settle, uint64(id)+1, test.used)); r.Status != Allowed || r.Granted != test.held-test.used {
				t.Errorf("%v: %d of %d units used: %+v", a, test.used, test.held, r)
			}
		}
	}
}
