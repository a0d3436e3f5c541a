package remote

import (
	"fmt"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
)

// Law 8: the key of holds that are given back at their end expires when their units can count no more, however long
// ago the holds ended: nobody may have asked about the key before. It does not expire while they may still be settled.
// This holds for holds that are sent alone, joined, and beside other entries of their key.
func TestLaw8HoldsToBeGivenBackAreKeptWhileTheyCount(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	script := NewScript(client)
	t.Run("calendar", func(t *testing.T) { // a window may be as long as 31 days and an hour
		key, rule := redistest.Prefix()+"held", newRule(t, limit.PerCalendar(9, limit.CalendarMonth, time.UTC), limit.FixedWindow()).GivesBack()
		clock := runAll(t, script, []Entry{holdEntry(key, rule, lua.Hold, 1, 1)})[0].Clock
		want := (clock + (31*24*time.Hour + time.Hour).Microseconds() + 999) / 1000
		if at := redistest.ExpireTime(t, client, key+":holds").Milliseconds(); at != want {
			t.Errorf("expires at %d, want %d", at, want)
		}
	})
	t.Run("a window shorter than the hold", func(t *testing.T) { // it may be settled until it is over, and some time later
		key, rule := redistest.Prefix()+"held", newRule(t, limit.PerSecond(100), limit.FixedWindow()).GivesBack()
		hold := holdEntry(key, rule, lua.Hold, 1, 1)
		clock := runAll(t, script, []Entry{hold})[0].Clock
		want := (clock + hold.Hold.Life.Microseconds() + lua.LateHold + 999) / 1000
		if at := redistest.ExpireTime(t, client, key+":holds").Milliseconds(); at != want {
			t.Errorf("expires at %d, want %d", at, want)
		}
	})
	for _, a := range configurations() {
		for _, burst := range []int64{0, 250} {
			l := limit.PerDay(100).WithBurst(burst)
			counts := l.Window().Microseconds()
			if a == limit.GCRA() && burst > 0 { // the burst takes longer to pay off, and the result is rounded up
				counts = counts*burst/100 + 1
			}
			rule := newRule(t, l, a).GivesBack()
			for _, how := range []string{"alone", "joined", "beside another entry"} {
				t.Run(fmt.Sprint(a, " burst=", burst, " ", how), func(t *testing.T) {
					key := redistest.Prefix() + "held"
					hold := holdEntry(key, rule, lua.Hold, 1, 1)
					entries := []Entry{hold}
					switch how {
					case "joined":
						other := holdEntry(key, rule, lua.Hold, 2, 1)
						if !entries[0].joinHold(&other) {
							t.Fatal("they share no entry")
						}
					case "beside another entry":
						entries = []Entry{{Key: key, Rule: rule, Operation: lua.Peek, Cost: 1}, hold}
					}
					clock := runAll(t, script, entries)[0].Clock
					want := (clock + counts + 999) / 1000
					if at := redistest.ExpireTime(t, client, key+":holds").Milliseconds(); at != want {
						t.Errorf("expires at %d, %v after the holds were made; want %d", at, time.Duration(at*1000-clock)*time.Microsecond, want)
					}
				})
			}
		}
	}
}
