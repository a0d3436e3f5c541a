package limit

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// Limits and decisions in JSON are what they were when they are read back.
func TestJSON(t *testing.T) {
	type record struct {
		Limit    Limit
		Decision Decision
	}
	for _, want := range []record{
		{PerMinute(60), Decision{Allowed: true, Granted: 1, Limit: 60, Remaining: 59, Algorithm: SlidingLog()}},
		{PerHour(9).WithBurst(3), Decision{Limit: 9, RetryAfter: time.Second, Tier: TierOverload, Algorithm: GCRA()}},
		{PerCalendar(5, CalendarMonth, time.UTC), Decision{Tier: TierLocal, Algorithm: FixedWindow()}},
		{Concurrent(4), Decision{Tier: TierLease, Algorithm: Concurrency()}},
		{PerDay(1), Decision{Tier: TierFallback}},
	} {
		text, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got record
		if err := json.Unmarshal(text, &got); err != nil || got != want {
			t.Errorf("%s is read as %+v, %v", text, got, err)
		}
		for _, name := range []string{want.Limit.String(), want.Decision.Tier.String()} {
			if !strings.Contains(string(text), `"`+name+`"`) {
				t.Errorf("%s has no %q", text, name)
			}
		}
	}
}

// Logs in JSON have the same words as logs in text.
func TestLogsInJSON(t *testing.T) {
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("", "limit", PerMinute(60), "tier", TierFallback)
	if text := log.String(); !strings.Contains(text, `"limit":"60/1m","tier":"fallback"`) {
		t.Error(text)
	}
}

// What cannot be read is an error, and changes nothing.
func TestUnmarshalTextRefusesMistakes(t *testing.T) {
	l, tier := PerMinute(60), TierLease
	if err := json.Unmarshal([]byte(`"0/1m"`), &l); !errors.Is(err, ErrInvalidLimit) || l != PerMinute(60) {
		t.Error(l, err)
	}
	if err := json.Unmarshal([]byte(`"unknown"`), &tier); err == nil || !strings.Contains(err.Error(), `"unknown"`) || tier != TierLease {
		t.Error(tier, err)
	}
}
