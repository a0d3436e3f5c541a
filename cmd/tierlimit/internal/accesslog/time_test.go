package accesslog

import (
	"strings"
	"testing"
	"time"
)

const layout = "02/Jan/2006:15:04:05 -0700"

func TestParseTime(t *testing.T) {
	tests := []struct {
		text string
		want string // in UTC, or the cause
	}{
		{"01/Aug/1995:06:00:00 +0000", "1995-08-01T06:00:00Z"},
		{"01/Aug/1995:00:00:01 -0400", "1995-08-01T04:00:01Z"},
		{"01/Mar/2024:01:00:00 +0530", "2024-02-29T19:30:00Z"},
		{"31/Dec/2023:23:00:00 -0130", "2024-01-01T00:30:00Z"},
		{"29/Feb/2000:12:34:56 +1400", "2000-02-28T22:34:56Z"},
		{"01/Jan/2024:00:00:00.5 +0000", "2024-01-01T00:00:00.5Z"},
		{"01/Jan/2024:00:00:00.000001 +0000", "2024-01-01T00:00:00.000001Z"},
		{"01/Jan/2024:00:00:00.123456789 +0000", "2024-01-01T00:00:00.123456789Z"},
		{"01/Jan/1970:00:00:00 +0000", "1970-01-01T00:00:00Z"},
		{"31/Dec/9999:23:59:59 +0000", "9999-12-31T23:59:59Z"},

		{"31/Feb/2024:00:00:00 +0000", badDate},
		{"29/Feb/2023:00:00:00 +0000", badDate},
		{"29/Feb/1900:00:00:00 +0000", badDate},
		{"31/Apr/2023:00:00:00 +0000", badDate},
		{"00/Jan/2023:00:00:00 +0000", badDate},
		{"32/Jan/2023:00:00:00 +0000", badDate},
		{"01/Jan/2023:24:00:00 +0000", badClock},
		{"01/Jan/2023:00:60:00 +0000", badClock},
		{"01/Jan/2023:00:00:60 +0000", badClock},
		{"01/Jan/2023:00:00:00 +2400", badZone},
		{"01/Jan/2023:00:00:00 -9959", badZone},
		{"01/Jan/1970:00:00:00 +0001", beforeEpoch},
		{"01/Jan/0000:00:00:00 +0000", beforeEpoch},
		{"", badTime},
		{"01/Jan/2023:00:00:00", badTime},
		{"01/Jan/2023:00:00:00+0000", badTime},
		{"01/Jan/2023:00:00:00  0000", badTime},
		{"01/Jan/2023:00:00:00 +0060", badTime},
		{"01/Jan/2023:00:00:00 +00:00", badTime},
		{"01/Jan/2023 00:00:00 +0000", badTime},
		{"1/Jan/2023:00:00:00 +0000", badTime},
		{" 1/Jan/2023:00:00:00 +0000", badTime},
		{"+1/Jan/2023:00:00:00 +0000", badTime},
		{"01/jan/2023:00:00:00 +0000", badTime},
		{"01/Foo/2023:00:00:00 +0000", badTime},
		{"01/Jan/2023:00:00:00, +0000", badTime},
		{"01/Jan/2023:00:00:00. +0000", badTime},
		{"01/Jan/2023:00:00:00.x +0000", badTime},
		{"01/Jan/2023:00:00:00.1234567890 +0000", badTime},
	}
	for _, test := range tests {
		got, fault := parseTime([]byte(test.text))
		text := got.Format(time.RFC3339Nano)
		if fault.what != "" {
			text = fault.what
		}
		if text != test.want {
			t.Errorf("%q: got %s, want %s", test.text, text, test.want)
		}
	}
}

// parseTime agrees with the standard library about every day of four centuries, and beyond.
func TestParseTimeAgreesWithStandardLibrary(t *testing.T) {
	day := time.Date(1970, 1, 1, 1, 2, 3, 0, time.FixedZone("", 3600))
	for day.Year() < 2401 {
		text := day.Format(layout)
		got, fault := parseTime([]byte(text))
		if fault.what != "" || !got.Equal(day) {
			t.Fatalf("%s: got %v %v", text, got, fault)
		}
		day = day.Add(24*time.Hour + 37*time.Second)
	}
}

func FuzzParseTime(f *testing.F) {
	f.Add("01/Aug/1995:06:00:00 -0400")
	f.Add("29/Feb/2023:23:59:59.25 +1400")
	f.Fuzz(func(t *testing.T, text string) {
		got, fault := parseTime([]byte(text))
		if fault.what != "" {
			return
		}
		want, err := time.Parse(layout, text)
		if err != nil || !got.Equal(want) {
			t.Errorf("%q: got %v, the standard library %v, %v", text, got, want, err)
		}
	})
}

// A time that cannot be read may be anywhere in a long line, so the cause quotes it.
func TestTheCauseQuotesTheTime(t *testing.T) {
	for log, quoted := range map[string]string{
		`{"agent":"` + strings.Repeat("a", 200) + `","time":"2026-02-30T00:00:00Z","ip":"10.0.0.1"}`: `"2026-02-30T00:00:00Z"`,
		"agent,timestamp,client\n" + strings.Repeat("a", 200) + ",22.11.2026 12:00,10.0.0.1\n":       `"22.11.2026 12:00"`,
		`time="22.11.2026 12:00" ip=10.0.0.1`:                                                        `"22.11.2026 12:00"`,
	} {
		reader, err := NewReader(strings.NewReader(log))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := reader.Read(); err == nil || reader.BadLines() != 1 || !strings.HasSuffix(reader.FirstBad()[0].Cause, ": "+quoted) {
			t.Errorf("%q is bad because of %v", log, reader.FirstBad())
		}
	}
}
