package limit

import (
	"fmt"
	"strings"
	"time"
)

// CalendarUnit is the kind of a calendar window: a day, a week or a month.
type CalendarUnit uint8

// The units. A week begins on Monday.
const (
	CalendarDay CalendarUnit = iota + 1
	CalendarWeek
	CalendarMonth
)

// calendarUnits has the name and the nominal length of each unit: a day without a clock change, a week of
// such days, and the longest month.
var calendarUnits = map[CalendarUnit]struct {
	name   string
	length time.Duration
}{
	CalendarDay:   {"day", 24 * time.Hour},
	CalendarWeek:  {"week", 7 * 24 * time.Hour},
	CalendarMonth: {"month", 31 * 24 * time.Hour},
}

// PerCalendar returns a limit of quota units in each day, week or month of the calendar in a time zone,
// as quotas are sold and billed. The count starts from zero at midnight in that zone. Such a limit is
// always counted by [FixedWindow]. So up to twice the quota can pass in a short time around a boundary,
// and up to three times the quota in the length of the longest window. All instances of a fleet must use the
// same zone. So do not use time.Local, which depends on the machine.
func PerCalendar(quota int64, unit CalendarUnit, zone *time.Location) Limit {
	return Limit{quota: quota, window: calendarUnits[unit].length, calendar: unit, zone: zone}
}

// IsCalendar reports whether the limit counts in calendar windows.
func (l Limit) IsCalendar() bool { return l.calendar != 0 }

// String returns "day", "week" or "month".
func (u CalendarUnit) String() string {
	if of, known := calendarUnits[u]; known {
		return of.name
	}
	return fmt.Sprintf("CalendarUnit(%d)", u)
}

// Calendar returns the start and the end of the calendar window that contains t. The end is the start of
// the next window. Call it only for limits of [PerCalendar].
func (l Limit) Calendar(t time.Time) (start, end time.Time) {
	start, end = l.windowOfDay(t)
	if !t.Before(end) {
		// The clocks went back from past midnight to the day before, as in Newfoundland until 2011. The repeated
		// part of that day belongs to the window that had begun.
		return l.windowOfDay(end)
	}
	return start, end
}

// windowOfDay returns the window that the day shown by a clock at t belongs to.
func (l Limit) windowOfDay(t time.Time) (start, end time.Time) {
	year, month, day := t.In(l.zone).Date()
	switch l.calendar {
	case CalendarWeek:
		sinceMonday := (int(t.In(l.zone).Weekday()) + 6) % 7
		day -= sinceMonday
		return l.midnight(year, month, day), l.midnight(year, month, day+7)
	case CalendarMonth:
		return l.midnight(year, month, 1), l.midnight(year, month+1, 1)
	}
	return l.midnight(year, month, day), l.midnight(year, month, day+1)
}

// midnight returns the first moment of a day. In zones whose clocks go forward at midnight, 0:00 does not
// exist on that day, and the day begins later. Where the clocks go back to 0:00 later on that day, 0:00
// exists twice, and midnight returns the first.
func (l Limit) midnight(year int, month time.Month, day int) time.Time {
	t := time.Date(year, month, day, 0, 0, 0, 0, l.zone)
	noon := time.Date(year, month, day, 12, 0, 0, 0, l.zone)
	if t.Day() != noon.Day() { // 0:00 does not exist, and time.Date returned a time late on the day before
		_, t = t.ZoneBounds()
		return t
	}
	// If 0:00 exists twice, time.Date may have returned the second.
	since, _ := t.ZoneBounds()
	_, now := t.Zone()
	_, before := since.Add(-1).Zone()
	if first := t.Add(time.Duration(now-before) * time.Second); first.Before(since) {
		return first
	}
	return t
}

func (l Limit) validateCalendar() error {
	switch {
	case l.calendar > CalendarMonth:
		return fmt.Errorf("%w: calendar unit is %d, must be CalendarDay, CalendarWeek or CalendarMonth", ErrInvalidLimit, l.calendar)
	case l.zone == nil:
		return fmt.Errorf("%w: the calendar's time zone is nil; use time.UTC or time.LoadLocation", ErrInvalidLimit)
	case l.HasBurst():
		return fmt.Errorf("%w: burst is %d, but a calendar limit has no burst", ErrInvalidLimit, l.burst)
	}
	return nil
}

// parseCalendar reads UNIT@ZONE.
func parseCalendar(quota int64, unitText, zoneText, whole string) (Limit, error) {
	zone, err := time.LoadLocation(zoneText)
	if err != nil || zoneText == "" || strings.EqualFold(zoneText, "local") {
		return Limit{}, fmt.Errorf("%w: time zone %q in %q is not known, write it like UTC or Europe/Berlin", ErrInvalidLimit, zoneText, whole)
	}
	for unit := CalendarDay; unit <= CalendarMonth; unit++ {
		if unit.String() == unitText {
			return PerCalendar(quota, unit, zone), nil
		}
	}
	return Limit{}, fmt.Errorf("%w: calendar unit %q in %q, must be day, week or month", ErrInvalidLimit, unitText, whole)
}
