package limit

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// The largest and smallest values a limit may hold. They follow from law 10: every number the Redis
// scripts compute with must stay an exact integer below 2^53, the bound up to which Lua numbers represent
// every integer.
const (
	// MaxQuota is the largest number of units per window (and the largest burst).
	MaxQuota = 1 << 40
	// MinWindow is the shortest window.
	MinWindow = time.Millisecond
	// MaxWindow is the longest window.
	MaxWindow = 366 * 24 * time.Hour
)

// MaxKey is the length of the longest key of a request, in bytes. Keys longer than 64 bytes are
// replaced by a hash, in Redis and in the process.
const MaxKey = 64 << 10

// Limit is a number of units ("quota") that may be used in any window of a given length, or in each day,
// week or month of the calendar. The zero Limit is invalid; make one with [Per], [PerSecond],
// [PerMinute], [PerHour], [PerDay], [PerCalendar], [Concurrent] or [Parse]. Limits are comparable with
// ==. Calendar limits are equal only if they have the same *time.Location pointer; each call of
// [time.LoadLocation] or Parse returns a new one.
//
// Constructors do not fail. The limiter checks a limit with [Limit.Validate] when a rule is made from it.
type Limit struct {
	quota  int64
	window time.Duration
	burst  int64

	calendar CalendarUnit   // 0: windows of the given length
	zone     *time.Location // time zone of the calendar

	concurrent bool // no window: quota is the number of units that may be held at the same time
}

// Per returns a limit of quota units per window.
func Per(quota int64, window time.Duration) Limit {
	return Limit{quota: quota, window: window}
}

// PerSecond returns a limit of quota units in any second.
func PerSecond(quota int64) Limit { return Per(quota, time.Second) }

// PerMinute returns a limit of quota units in any 60 seconds.
func PerMinute(quota int64) Limit { return Per(quota, time.Minute) }

// PerHour returns a limit of quota units in any 60 minutes.
func PerHour(quota int64) Limit { return Per(quota, time.Hour) }

// PerDay returns a limit of quota units in any 24 hours.
func PerDay(quota int64) Limit { return Per(quota, 24*time.Hour) }

// WithBurst returns a copy of l that, under GCRA, lets up to burst units through at once; units then
// return one by one at the limit's even rate. The other algorithms have no notion of a burst and ignore
// it, so a rule that chooses its algorithm itself chooses GCRA for a limit with a burst. Zero means that
// no burst is set; see [Limit.Burst]. At the limit's rate, the burst must return within [MaxWindow]. A
// limit of [PerCalendar] or [Concurrent] cannot have a burst.
func (l Limit) WithBurst(burst int64) Limit {
	l.burst = burst
	return l
}

// Quota returns the number of units per window.
func (l Limit) Quota() int64 { return l.quota }

// Window returns the length of the window. For a calendar window it is the length of a day without a
// change of clocks, of a week of such days, or of the longest month. For a limit of [Concurrent] it is 0.
func (l Limit) Window() time.Duration { return l.window }

// Burst returns the number of units that GCRA lets through at once. It is the quota if no burst was set.
// The worst case of GCRA is quota+burst-1 units in a window: one less than twice the quota if no burst
// was set, and closer to the quota with a smaller burst.
func (l Limit) Burst() int64 {
	if l.HasBurst() {
		return l.burst
	}
	return l.quota
}

// HasBurst reports whether a burst was set.
func (l Limit) HasBurst() bool { return l.burst != 0 }

// Validate returns nil, or an error that wraps [ErrInvalidLimit] and names the
// field and its value.
func (l Limit) Validate() error {
	switch {
	case l.quota < 1 || l.quota > MaxQuota:
		return fmt.Errorf("%w: quota is %d, must be between 1 and %d", ErrInvalidLimit, l.quota, int64(MaxQuota))
	case l.concurrent && l.HasBurst():
		return fmt.Errorf("%w: burst is %d, but a concurrency limit has no burst", ErrInvalidLimit, l.burst)
	case l.concurrent:
		return nil
	case l.IsCalendar():
		return l.validateCalendar()
	case l.window < MinWindow || l.window > MaxWindow:
		return fmt.Errorf("%w: window is %s, must be between %s and %s", ErrInvalidLimit, written(l.window), written(MinWindow), written(MaxWindow))
	case l.window%time.Microsecond != 0:
		return fmt.Errorf("%w: window is %v, must be a whole number of microseconds (Redis's clock is no finer)", ErrInvalidLimit, l.window)
	case l.burst < 0 || l.burst > MaxQuota:
		return fmt.Errorf("%w: burst is %d, must be between 1 and %d, or 0 for a burst of the quota", ErrInvalidLimit, l.burst, int64(MaxQuota))
	case l.burstTooLong():
		return fmt.Errorf("%w: burst is %d, which at %d units per %s takes longer than %s to return", ErrInvalidLimit, l.burst, l.quota, written(l.window), written(MaxWindow))
	}
	return nil
}

// burstTooLong reports whether burst*window/quota, the time in which a burst returns, is above MaxWindow.
// It compares 128-bit products because they do not fit in 64 bits.
func (l Limit) burstTooLong() bool {
	hi, lo := bits.Mul64(uint64(l.Burst()), uint64(l.window))
	maxHi, maxLo := bits.Mul64(uint64(l.quota), uint64(MaxWindow))
	return hi > maxHi || hi == maxHi && lo > maxLo
}

// String returns the form that [Parse] reads: "10/1m", followed by ",burst=5" if a burst was set. Parse finds a
// calendar's time zone by its name. So it reads the limit back only if the zone came from [time.LoadLocation] or is
// time.UTC; it reads neither time.Local nor zones of time.FixedZone.
func (l Limit) String() string {
	s := strconv.FormatInt(l.quota, 10) + "/" + l.WindowString()
	if l.HasBurst() {
		s += ",burst=" + strconv.FormatInt(l.burst, 10)
	}
	return s
}

// MarshalText writes [Limit.String], so that JSON and logs show a limit as in "60/1m". It writes any limit, also
// one that is not valid.
func (l Limit) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText reads what [Parse] reads.
func (l *Limit) UnmarshalText(text []byte) error { return unmarshal(l, text, Parse) }

// WindowString returns the window in the form that [Parse] reads: "1m", "24h", "1h30m", or, for a window
// of the calendar, "month@Europe/Berlin".
func (l Limit) WindowString() string {
	switch {
	case l.IsConcurrent():
		return concurrentWindow
	case l.IsCalendar():
		return fmt.Sprintf("%v@%v", l.calendar, l.zone)
	}
	return written(l.window)
}

// written formats a duration as time.Duration does, without trailing zero minutes and seconds.
func written(d time.Duration) string {
	s := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(s, zero) {
			s = s[:len(s)-2]
		}
	}
	return s
}

// Parse reads a limit written as QUOTA/WINDOW, for example "10/1m", "5/s", "1000/24h" or "7/day",
// optionally followed by ",burst=B". The window is a Go duration, or one of the words s, sec, second, m,
// min, minute, h, hour, d, day. A calendar window is written as day, week or month, followed by "@" and
// its time zone: "5000/month@Europe/Berlin". A limit of [Concurrent] is written "10/concurrent". The
// error wraps [ErrInvalidLimit] and quotes the part that could not be read.
func Parse(s string) (Limit, error) {
	body, burstText, hasBurst := strings.Cut(s, ",burst=")
	quotaText, windowText, ok := strings.Cut(body, "/")
	if !ok {
		return Limit{}, fmt.Errorf(`%w: %q has no "/": write it as QUOTA/WINDOW, like 10/1m`, ErrInvalidLimit, s)
	}
	quota, err := strconv.ParseInt(strings.TrimSpace(quotaText), 10, 64)
	if err != nil {
		return Limit{}, fmt.Errorf("%w: quota %q in %q is not a whole number between 1 and %d", ErrInvalidLimit, quotaText, s, int64(MaxQuota))
	}
	unit, zone, isCalendar := strings.Cut(windowText, "@")
	unit = strings.TrimSpace(unit)
	window, err := parseWindow(unit)
	l := Per(quota, window)
	switch {
	case isCalendar && hasBurst:
		return Limit{}, fmt.Errorf("%w: burst %q in %q, but a calendar limit has no burst", ErrInvalidLimit, burstText, s)
	case isCalendar:
		if l, err = parseCalendar(quota, unit, strings.TrimSpace(zone), s); err != nil {
			return Limit{}, err
		}
	case unit == concurrentWindow && hasBurst:
		return Limit{}, fmt.Errorf("%w: burst %q in %q, but a concurrency limit has no burst", ErrInvalidLimit, burstText, s)
	case unit == concurrentWindow:
		l = Concurrent(quota)
	case unit == "week" || unit == "month":
		return Limit{}, fmt.Errorf("%w: window %q in %q is a calendar window and needs a time zone: write it like %s@UTC or %s@Europe/Berlin", ErrInvalidLimit, windowText, s, unit, unit)
	case err != nil:
		return Limit{}, fmt.Errorf("%w: window %q in %q is not a duration like 10s, 1m or 24h", ErrInvalidLimit, windowText, s)
	}
	if hasBurst {
		burst, err := strconv.ParseInt(strings.TrimSpace(burstText), 10, 64)
		if err != nil || burst == 0 {
			return Limit{}, fmt.Errorf("%w: burst %q in %q is not a whole number between 1 and %d", ErrInvalidLimit, burstText, s, int64(MaxQuota))
		}
		l = l.WithBurst(burst)
	}
	return l, l.Validate()
}

func parseWindow(s string) (time.Duration, error) {
	switch s {
	case "s", "sec", "second":
		return time.Second, nil
	case "m", "min", "minute":
		return time.Minute, nil
	case "h", "hour":
		return time.Hour, nil
	case "d", "day":
		return 24 * time.Hour, nil
	}
	return time.ParseDuration(s)
}
