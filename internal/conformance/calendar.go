package conformance

import (
	"time"
	_ "time/tzdata" // because the suite may run where the system has no zones

	"pgregory.net/rapid"

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
	rule, reference := newPair(t, l, limit.FixedWindow())
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
			s.check(t, e, now, reference.Charge(now, "a", sequence, past))
		}
		cost := rapid.Int64Range(1, l.Quota()).Draw(t, "cost")
		s.check(t, remote.Entry{Key: key, Rule: rule, Cost: cost}, now, reference.Decide(now, cost))
	}
}
