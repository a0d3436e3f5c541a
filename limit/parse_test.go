package limit

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]Limit{
		"10/1m":                               PerMinute(10),
		"10/1m0s":                             PerMinute(10),
		" 10 / 1m ":                           PerMinute(10),
		"5/s":                                 PerSecond(5),
		"5/sec":                               PerSecond(5),
		"5/second":                            PerSecond(5),
		"5/m":                                 PerMinute(5),
		"5/min":                               PerMinute(5),
		"5/minute":                            PerMinute(5),
		"5/h":                                 PerHour(5),
		"5/hour":                              PerHour(5),
		"7/d":                                 PerDay(7),
		"7/day":                               PerDay(7),
		"1000/24h":                            PerDay(1000),
		"1/1.5s":                              Per(1, 1500*time.Millisecond),
		"1/1ms":                               Per(1, MinWindow),
		"1/8784h":                             Per(1, MaxWindow),
		"1099511627776/s":                     PerSecond(MaxQuota),
		"100/s,burst=5":                       PerSecond(100).WithBurst(5),
		"100/s,burst= 5 ":                     PerSecond(100).WithBurst(5),
		"100/1s,burst=1000":                   PerSecond(100).WithBurst(1000),
		"1099511627776/s,burst=1099511627776": PerSecond(MaxQuota).WithBurst(MaxQuota),
		"10/concurrent":                       Concurrent(10),
		" 10 / concurrent ":                   Concurrent(10),
	} {
		got, err := Parse(text)
		if err != nil || got != want {
			t.Errorf("Parse(%q) is %v, %v; want %v", text, got, err, want)
		}
	}
}

// Law 6: the error names the part that cannot be read, and quotes it.
func TestParseErrors(t *testing.T) {
	for text, says := range map[string]string{
		"":                       `"" has no "/"`,
		"10":                     `"10" has no "/"`,
		"10 per minute":          `has no "/"`,
		"/1m":                    `quota "" in "/1m"`,
		"ten/1m":                 `quota "ten"`,
		"1.5/1m":                 `quota "1.5"`,
		"1e3/1m":                 `quota "1e3"`,
		"9223372036854775808/1m": `quota "9223372036854775808"`,
		"0/1m":                   "quota is 0,",
		"-3/1m":                  "quota is -3,",
		"10/":                    `window "" in "10/" is not a duration`,
		"10/1":                   `window "1"`,
		"10/week":                `window "week" in "10/week" is a calendar window and needs a time zone: write it like week@UTC`,
		"10/month":               `write it like month@UTC`,
		"10/1m/2":                `window "1m/2"`,
		"10/0s":                  "window is 0s,",
		"10/-1s":                 "window is -1s,",
		"10/1ns":                 "window is 1ns,",
		"10/9000h":               "window is 9000h,",
		"10/1m,burst=":           `burst ""`,
		"10/1m,burst=0":          `burst "0"`,
		"10/1m,burst=x":          `burst "x"`,
		"10/1m,burst=1,burst=2":  `burst "1,burst=2"`,
		"10/1m,burst=-1":         "burst is -1,",
		"10/1m,bursts=1":         `window "1m,bursts=1"`,
		"1/8784h,burst=2":        "burst is 2,",
		"0/concurrent":           "quota is 0,",
		"10/concurrent,burst=1":  `burst "1" in "10/concurrent,burst=1", but a concurrency limit has no burst`,
	} {
		_, err := Parse(text)
		if !errors.Is(err, ErrInvalidLimit) || !strings.Contains(err.Error(), says) {
			t.Errorf("Parse(%q): %v; want ErrInvalidLimit saying %s", text, err, says)
		}
	}
}

func TestLimitString(t *testing.T) {
	for want, l := range map[string]Limit{
		"10/1m":               PerMinute(10),
		"10/24h":              PerDay(10),
		"1/1.000001s":         Per(1, time.Second+time.Microsecond),
		"5/1h30m":             Per(5, 90*time.Minute),
		"5/1h0m30s":           Per(5, time.Hour+30*time.Second),
		"5/10m":               Per(5, 10*time.Minute),
		"5/20h":               Per(5, 20*time.Hour),
		"5/500ms":             Per(5, 500*time.Millisecond),
		"10/1m,burst=5":       PerMinute(10).WithBurst(5),
		"10/concurrent":       Concurrent(10),
		"1099511627776/8784h": Per(MaxQuota, MaxWindow),
	} {
		if got := l.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		if again, err := Parse(want); err != nil || again != l {
			t.Errorf("Parse(%q) is %#v, %v; want %#v", want, again, err, l)
		}
	}
}

// Parse never panics. A limit that it accepts is valid, and is equal after being written by String and parsed
// again.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"10/1m", "5/s", "1000/24h", "7/day", "1099511627776/8784h", "100/1.5s,burst=5",
		"", "/", "0/0", "-1/-1s", "1/1ms,burst=-1", "9223372036854775808/1m", "1/1ns", "\x00/\xff,burst=",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l, err := Parse(text)
		if err != nil {
			if !errors.Is(err, ErrInvalidLimit) {
				t.Fatalf("Parse(%q): %v, which is not ErrInvalidLimit", text, err)
			}
			return
		}
		if err := l.Validate(); err != nil {
			t.Fatalf("Parse(%q) is invalid: %v", text, err)
		}
		if again, err := Parse(l.String()); err != nil || again != l {
			t.Fatalf("Parse(%q) is %v, which reads as %v, %v", text, l, again, err)
		}
	})
}
