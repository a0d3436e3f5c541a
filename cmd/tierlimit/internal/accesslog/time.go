package accesslog

import (
	"slices"
	"time"
)

// The causes of a bad time.
const (
	badTime     = "the time is not written like 02/Jan/2006:15:04:05 -0700"
	badClock    = "the time's hour, minute or second is out of range"
	badDate     = "the time's day does not exist in that month"
	badZone     = "the time's zone is out of range"
	beforeEpoch = "the time is before 1970"
	tooLate     = "the time is after the year 2100"
)

// lastSecond bounds the times that are read, in seconds since 1970: it is the beginning of the year 2101. A limiter
// counts until the year 2100, see tiered.VirtualClock. A later time is rather of a machine whose clock is wrong.
const lastSecond = 4_133_980_800

// parseTime reads 02/Jan/2006:15:04:05 -0700, with or without a fraction after the seconds, and returns
// the time in UTC. It parses by hand, because time.Parse would take most of the time of reading a log.
func parseTime(b []byte) (time.Time, fault) {
	const clock, zoneWidth = len("02/Jan/2006:15:04:05"), len(" -0700")
	if len(b) < clock+zoneWidth || b[2] != '/' || b[6] != '/' || b[11] != ':' || b[14] != ':' || b[17] != ':' {
		return time.Time{}, fault{badTime, b}
	}
	day, month, year := digits(b[0:2]), parseMonth(b[3:6]), digits(b[7:11])
	hour, minute, second := digits(b[12:14]), digits(b[15:17]), digits(b[18:20])
	nanos := parseFraction(b[clock : len(b)-zoneWidth])
	offset, ok := parseZone(b[len(b)-zoneWidth:])
	if min(day, year, hour, minute, second, nanos) < 0 || month == 0 || !ok {
		return time.Time{}, fault{badTime, b}
	}
	if hour > 23 || minute > 59 || second > 59 {
		return time.Time{}, fault{badClock, b}
	}
	if offset <= -24*time.Hour || offset >= 24*time.Hour {
		return time.Time{}, fault{badZone, b}
	}
	t := time.Date(int(year), month, int(day), int(hour), int(minute), int(second), int(nanos), time.UTC)
	if t.Day() != int(day) { // Date turns 31 February into 3 March
		return time.Time{}, fault{badDate, b}
	}
	t = t.Add(-offset)
	if t.Unix() < 0 {
		return time.Time{}, fault{beforeEpoch, b}
	}
	return t, fault{}
}

var months = []string{"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"}

// parseMonth returns 0 for text that is not a month.
func parseMonth(b []byte) time.Month { return time.Month(slices.Index(months, string(b)) + 1) }

// parseFraction reads an empty text, or a point and up to nine digits, and returns nanoseconds.
func parseFraction(b []byte) int64 {
	if len(b) == 0 {
		return 0
	}
	if b[0] != '.' || len(b) > len(".123456789") {
		return -1
	}
	nanos := digits(b[1:])
	for range len(".123456789") - len(b) {
		nanos *= 10
	}
	return nanos
}

// parseZone reads " -0700" and returns how far the zone's clock is ahead of UTC.
func parseZone(b []byte) (time.Duration, bool) {
	hours, minutes := digits(b[2:4]), digits(b[4:6])
	if b[0] != ' ' || hours < 0 || minutes < 0 || minutes > 59 {
		return 0, false
	}
	ahead := time.Duration(hours)*time.Hour + time.Duration(minutes)*time.Minute
	switch b[1] {
	case '+':
		return ahead, true
	case '-':
		return -ahead, true
	}
	return 0, false
}
