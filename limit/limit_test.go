package limit

import (
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestConstructors(t *testing.T) {
	for _, test := range []struct {
		got    Limit
		window time.Duration
	}{
		{Per(7, 90*time.Second), 90 * time.Second},
		{PerSecond(7), time.Second},
		{PerMinute(7), time.Minute},
		{PerHour(7), time.Hour},
		{PerDay(7), 24 * time.Hour},
	} {
		if test.got.Quota() != 7 || test.got.Window() != test.window {
			t.Errorf("%v: quota %d, window %v; want 7 and %v", test.got, test.got.Quota(), test.got.Window(), test.window)
		}
		if err := test.got.Validate(); err != nil {
			t.Errorf("%v: %v", test.got, err)
		}
	}
}

func TestWithBurstCopies(t *testing.T) {
	plain := PerMinute(100)
	bursting := plain.WithBurst(7)
	if plain.Burst() != 10 || bursting.Burst() != 7 {
		t.Errorf("bursts are %d and %d, want 10 and 7", plain.Burst(), bursting.Burst())
	}
	if bursting.WithBurst(0) != plain {
		t.Error("a burst of zero is not automatic again")
	}
}

func TestAutomaticBurst(t *testing.T) {
	for quota, want := range map[int64]int64{
		1: 1, 9: 1, 10: 1, 11: 2, 20: 2, 21: 3, 1000: 100, 1001: 101,
		MaxQuota: 1<<40/10 + 1,
	} {
		if got := PerDay(quota).Burst(); got != want {
			t.Errorf("quota %d: burst %d, want %d", quota, got, want)
		}
	}
}

// What Burst promises: the automatic burst keeps GCRA's worst case within 10 % of
// the quota, and at the quota itself up to 10.
func TestAutomaticBurstKeepsTheWorstCaseSmall(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		quota := rapid.OneOf(rapid.Int64Range(1, 30), rapid.Int64Range(1, MaxQuota)).Draw(t, "quota")
		worst := GCRA().WorstCase(PerDay(quota))
		if worst < quota || 10*worst > 11*quota || quota <= 10 && worst != quota {
			t.Fatalf("quota %d: worst case %d", quota, worst)
		}
	})
}

// Law 6: what is out of range gets an error that names the field and the value;
// the last values in range get none.
func TestValidate(t *testing.T) {
	const microsecond = time.Microsecond
	for _, test := range []struct {
		limit Limit
		says  string // empty: valid
	}{
		{Limit{}, "quota is 0,"},
		{Per(0, time.Second), "quota is 0,"},
		{Per(-1, time.Second), "quota is -1,"},
		{Per(1, time.Second), ""},
		{Per(MaxQuota, time.Second), ""},
		{Per(MaxQuota+1, time.Second), "quota is 1099511627777,"},

		{Per(1, 0), "window is 0s,"},
		{Per(1, -time.Second), "window is -1s,"},
		{Per(1, MinWindow-microsecond), "window is 999µs,"},
		{Per(1, MinWindow), ""},
		{Per(1, MaxWindow), ""},
		{Per(1, MaxWindow+microsecond), "window is 8784h0m0.000001s,"},
		{Per(1, time.Second+1), "window is 1.000000001s, must be a whole number of microseconds"},
		{Per(1, time.Second+microsecond), ""},

		{PerSecond(1).WithBurst(-1), "burst is -1, must be between 1 and 1099511627776"},
		{PerSecond(1).WithBurst(1), ""},
		{PerSecond(MaxQuota).WithBurst(MaxQuota), ""},
		{PerSecond(MaxQuota).WithBurst(MaxQuota + 1), "burst is 1099511627777,"},

		// A burst takes burst*window/quota to return, at most MaxWindow. The products
		// pass 64 bits.
		{Per(1, MaxWindow).WithBurst(2), "burst is 2, which at 1 units per 8784h0m0s takes longer than 8784h0m0s"},
		{Per(10, MaxWindow).WithBurst(10), ""},
		{Per(10, MaxWindow).WithBurst(11), "burst is 11,"},
		{PerSecond(1).WithBurst(366 * 24 * 3600), ""},
		{PerSecond(1).WithBurst(366*24*3600 + 1), "burst is 31622401,"},
		{Per(MaxQuota, MaxWindow).WithBurst(MaxQuota), ""},
		{Per(MaxQuota-1, MaxWindow).WithBurst(MaxQuota), "burst is 1099511627776,"},
	} {
		err := test.limit.Validate()
		switch {
		case test.says == "":
			if err != nil {
				t.Errorf("%#v: %v", test.limit, err)
			}
		case !errors.Is(err, ErrInvalidLimit) || !strings.Contains(err.Error(), test.says):
			t.Errorf("%#v: %v; want ErrInvalidLimit saying %q", test.limit, err, test.says)
		}
	}
}
