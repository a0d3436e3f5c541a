package conformance

import (
	"time"
	_ "time/tzdata" // because the suite may run where the system has no zones

	"pgregory.net/rapid"

	"github.com/tierlimit/tierlimit/internal/model"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/remote"
)

// calendar checks windows of the calendar, in zones that change their clocks at night, at midnight, by half an
// hour, or not at all.
func (s suite) calendar(t *rapid.T) {
	zone, err := time.LoadLocation(rapid.SampledFrom([]string{
		"UTC", "Europe/Berlin", "America/Havana", "Australia/Lord_Howe", "Asia/Kathmandu", "Pacific/Apia",
	}).Draw(t, "zone"))
	if err != nil {
		t.Fatal(err)
	}
	unit := rapid.SampledFrom([]limit.CalendarUnit{limit.CalendarDay, limit.CalendarWeek, limit.CalendarMonth}).Draw(t, "unit")
	l := limit.PerCalendar(rapid.Int64Range(1, 20).Draw(t, "quota"), unit, zone)
	rule, err := remote.NewRule(l, limit.FixedWindow())
	if err != nil {
		t.Fatal(err)
	}
	reference, err := model.New(l, limit.FixedWindow())
	if err != nil {
		t.Fatal(err)
	}
	key, now := s.newKey(), int64(epoch)+rapid.Int64Range(0, 400*86_400_000_000).Draw(t, "start")
	sequence := int64(0)
	for range rapid.IntRange(1, 60).Draw(t, "requests") {
		_, end := l.Calendar(time.UnixMicro(now))
		switch rapid.IntRange(0, 5).Draw(t, "gap") {
		case 0:
			now = end.UnixMicro() + rapid.Int64Range(-1, 1).Draw(t, "edge")
		case 1:
			now -= rapid.Int64Range(1, 1_000_000).Draw(t, "back")
		case 2, 3:
			now += rapid.Int64Range(0, 2*l.Window().Microseconds()).Draw(t, "long")
		default:
			now += rapid.Int64Range(0, 3_600_000_000).Draw(t, "short")
		}
		if rapid.IntRange(0, 9).Draw(t, "charge") == 0 {
			past := drawPast(l.Quota(), l.Window().Microseconds()).Draw(t, "past")
			e := pastEntry(past)
			sequence++
			e.Key, e.Rule, e.Marker, e.Sequence = key, rule, "a", sequence
			reply := s.run(t, []remote.Entry{e}, now)[0]
			if got, want := outcome(reply), reference.Charge(now, "a", sequence, past); got != want {
				t.Fatalf("%v, %+v at %v:\ngot   %+v\nmodel %+v", l, past, time.UnixMicro(now).In(zone), got, want)
			}
		}
		cost := rapid.Int64Range(1, l.Quota()).Draw(t, "cost")
		reply := s.run(t, []remote.Entry{{Key: key, Rule: rule, Cost: cost}}, now)[0]
		if got, want := outcome(reply), reference.Decide(now, cost); got != want {
			t.Fatalf("%v, cost %d at %v:\ngot   %+v\nmodel %+v", l, cost, time.UnixMicro(now).In(zone), got, want)
		}
	}
}
