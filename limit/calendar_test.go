package limit

import (
	"errors"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // wherever the tests run
)

func zone(t *testing.T, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func TestCalendarWindows(t *testing.T) {
	for _, tc := range []struct{ zone, unit, at, start, end string }{
		{"UTC", "day", "2026-11-20T23:59:59Z", "2026-11-20T00:00:00Z", "2026-11-21T00:00:00Z"},
		{"UTC", "week", "2026-11-22T23:59:59Z", "2026-11-16T00:00:00Z", "2026-11-23T00:00:00Z"}, // a Sunday
		{"UTC", "week", "2026-11-23T00:00:00Z", "2026-11-23T00:00:00Z", "2026-11-30T00:00:00Z"}, // a Monday
		{"UTC", "month", "2028-02-29T12:00:00Z", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z"},
		{"UTC", "month", "2026-12-31T23:59:59Z", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"},
		{"Asia/Kathmandu", "day", "2026-11-20T18:15:00Z", "2026-11-20T18:15:00Z", "2026-11-21T18:15:00Z"},
		// Days of 23 and of 25 hours.
		{"Europe/Berlin", "day", "2026-03-29T12:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"},
		{"Europe/Berlin", "day", "2026-10-25T12:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"},
		// On this day, 0:00 does not exist in Havana: the day begins at 1:00, which is 5:00 UTC.
		{"America/Havana", "day", "2026-03-08T12:00:00Z", "2026-03-08T05:00:00Z", "2026-03-09T04:00:00Z"},
		{"America/Havana", "day", "2026-03-08T04:59:59Z", "2026-03-07T05:00:00Z", "2026-03-08T05:00:00Z"},
		// On these days, 0:00 occurs twice, because clocks are set back to it at 1:00.
		{"America/Havana", "day", "2026-11-01T04:30:00Z", "2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z"},
		{"Asia/Amman", "day", "2021-10-28T21:30:00Z", "2021-10-28T21:00:00Z", "2021-10-29T22:00:00Z"},
		{"Asia/Amman", "day", "2021-10-28T20:30:00Z", "2021-10-27T21:00:00Z", "2021-10-28T21:00:00Z"},
	} {
		t.Run(tc.zone+" "+tc.unit+" "+tc.at, func(t *testing.T) {
			l, err := Parse("10/" + tc.unit + "@" + tc.zone)
			if err != nil {
				t.Fatal(err)
			}
			at, err := time.Parse(time.RFC3339, tc.at)
			if err != nil {
				t.Fatal(err)
			}
			start, end := l.Calendar(at)
			if got := start.UTC().Format(time.RFC3339); got != tc.start {
				t.Errorf("starts at %s, want %s", got, tc.start)
			}
			if got := end.UTC().Format(time.RFC3339); got != tc.end {
				t.Errorf("ends at %s, want %s", got, tc.end)
			}
		})
	}
}

// The windows of a zone follow each other without gaps or overlaps, over years, whatever its clocks do.
func TestCalendarWindowsAreSeamless(t *testing.T) {
	for _, name := range []string{"UTC", "Europe/Berlin", "America/Havana", "America/Asuncion", "Australia/Lord_Howe", "Pacific/Apia", "Asia/Amman"} {
		for unit := CalendarDay; unit <= CalendarMonth; unit++ {
			l := PerCalendar(1, unit, zone(t, name))
			at := time.Date(2009, 1, 1, 12, 0, 0, 0, time.UTC)
			for at.Year() < 2030 {
				start, end := l.Calendar(at)
				if !start.Before(end) || at.Before(start) || !at.Before(end) {
					t.Fatalf("%v: %v does not lie in %v to %v", l, at, start, end)
				}
				if again, _ := l.Calendar(end.Add(-time.Microsecond)); !again.Equal(start) {
					t.Fatalf("%v: the window of %v began at %v, at its end at %v", l, at, start, again)
				}
				if next, _ := l.Calendar(end); !next.Equal(end) {
					t.Fatalf("%v: the window after %v begins at %v", l, end, next)
				}
				at = end
			}
		}
	}
}

func TestCalendarLimits(t *testing.T) {
	berlin := PerCalendar(5000, CalendarMonth, zone(t, "Europe/Berlin"))
	if s := berlin.String(); s != "5000/month@Europe/Berlin" {
		t.Error(s)
	}
	if again, err := Parse(berlin.String()); err != nil || again.String() != berlin.String() {
		t.Errorf("%v, %v", again, err)
	}
	if !berlin.IsCalendar() || PerDay(1).IsCalendar() {
		t.Error("which limits are the calendar's is wrong")
	}
	const day = 24 * time.Hour
	for unit, window := range map[CalendarUnit]time.Duration{CalendarDay: day, CalendarWeek: 7 * day, CalendarMonth: 31 * day} {
		if l := PerCalendar(7, unit, time.UTC); l.Quota() != 7 || l.Window() != window || l.Validate() != nil {
			t.Errorf("%v: quota %d, window %v, %v; want 7 and %v", l, l.Quota(), l.Window(), l.Validate(), window)
		}
	}
	for _, tc := range []struct {
		limit Limit
		word  string
	}{
		{PerCalendar(1, CalendarDay, nil), "zone"},
		{PerCalendar(1, CalendarMonth+1, time.UTC), "unit is 4"},
		{PerCalendar(0, CalendarDay, time.UTC), "quota is 0"},
		{PerCalendar(5, CalendarDay, time.UTC).WithBurst(-7), "burst is -7"},
	} {
		if err := tc.limit.Validate(); !errors.Is(err, ErrInvalidLimit) || !strings.Contains(err.Error(), tc.word) {
			t.Errorf("%v, want an error that names %q", err, tc.word)
		}
	}
	for s, says := range map[string]string{
		"5/year@UTC": `unit "year"`, "5/day@": `zone ""`, "5/day@Nowhere/Town": `zone "Nowhere/Town"`, "5/month@Local": `zone "Local"`,
		"5/day@UTC,burst=3": `burst "3"`, "5/day@UTC,burst=0": `burst "0"`, "5/day@UTC,burst=x": `burst "x"`, "0/day@UTC": "quota is 0",
	} {
		if _, err := Parse(s); !errors.Is(err, ErrInvalidLimit) || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", s, err)
		}
	}
}

// Where the clocks went back from a minute past midnight to the day before, the hour before midnight was there twice.
// The repeated hour belongs to the window that has begun, so windows have no gap, and each contains its time.
func TestCalendarWindowsWhereTheClocksWentBackPastMidnight(t *testing.T) {
	for _, name := range []string{"America/St_Johns", "America/Goose_Bay"} {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, unit := range []CalendarUnit{CalendarDay, CalendarWeek, CalendarMonth} {
			l := PerCalendar(1, unit, zone)
			for at := time.Date(1987, 10, 1, 0, 0, 0, 0, zone); at.Year() < 2012; at = at.Add(29 * time.Minute) {
				if m := at.Month(); m != time.October && m != time.November {
					at = at.AddDate(0, 0, 1)
					continue
				}
				start, end := l.Calendar(at)
				if next, _ := l.Calendar(end); start.After(at) || !at.Before(end) || !next.Equal(end) {
					t.Fatalf("%v: the window from %v to %v does not contain %v, or the next one begins at %v", l, start, end, at, next)
				}
			}
		}
	}
}
