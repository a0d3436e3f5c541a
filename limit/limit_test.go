package limit

import (
	"errors"
	"math/big"
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
	if plain.Burst() != 100 || bursting.Burst() != 7 {
		t.Errorf("bursts are %d and %d, want 100 and 7", plain.Burst(), bursting.Burst())
	}
	if bursting.WithBurst(0) != plain {
		t.Error("a burst of zero is not unset again")
	}
}

// A burst that is not set is the quota, for every limit, and is valid with it.
func TestTheBurstIsTheQuotaUnlessSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		quota := rapid.OneOf(rapid.Int64Range(1, 30), rapid.Int64Range(1, MaxQuota)).Draw(t, "quota")
		l := Per(quota, rapid.SampledFrom([]time.Duration{MinWindow, time.Minute, MaxWindow}).Draw(t, "window"))
		if err := l.Validate(); err != nil || l.HasBurst() || l.Burst() != quota || GCRA().WorstCase(l) != 2*quota-1 {
			t.Fatalf("%v: burst %d, worst case %d, %v", l, l.Burst(), GCRA().WorstCase(l), err)
		}
		if b := l.WithBurst(1); !b.HasBurst() || b.Burst() != 1 || GCRA().WorstCase(b) != quota {
			t.Fatalf("%v: burst %d, worst case %d", b, b.Burst(), GCRA().WorstCase(b))
		}
	})
}

// A burst is valid if and only if it returns within MaxWindow. The test computes that with products above 64
// bits.
func TestBurstsReturnWithinTheLongestWindow(t *testing.T) {
	// Of these products, the one with the smaller upper half has the larger lower half.
	if err := PerDay(1_000_000).Validate(); err != nil {
		t.Error(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		quota, burst := rapid.Int64Range(1, MaxQuota).Draw(t, "quota"), rapid.Int64Range(1, MaxQuota).Draw(t, "burst")
		window := time.Duration(rapid.Int64Range(1000, MaxWindow.Microseconds()).Draw(t, "window")) * time.Microsecond
		takes := new(big.Int).Mul(big.NewInt(burst), big.NewInt(int64(window)))
		longest := new(big.Int).Mul(big.NewInt(quota), big.NewInt(int64(MaxWindow)))
		if err := Per(quota, window).WithBurst(burst).Validate(); (err == nil) != (takes.Cmp(longest) <= 0) {
			t.Fatalf("%d per %v, burst %d: %v", quota, window, burst, err)
		}
	})
}

// Law 6: a value that is out of range gets an error that names the field and the value. The last values in range
// get none.
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

		{Concurrent(1), ""},
		{Concurrent(MaxQuota), ""},
		{Concurrent(0), "quota is 0,"},
		{Concurrent(5).WithBurst(3), "burst is 3,"},

		{Per(1, 0), "window is 0s,"},
		{Per(1, -time.Second), "window is -1s,"},
		{Per(1, MinWindow-microsecond), "window is 999µs,"},
		{Per(1, MinWindow), ""},
		{Per(1, MaxWindow), ""},
		{Per(1, MaxWindow+microsecond), "window is 8784h0m0.000001s,"},
		{Per(1, time.Second+500), "window is 1.0000005s, must be a whole number of microseconds"},
		{Per(1, time.Second+microsecond), ""},

		{PerSecond(1).WithBurst(-1), "burst is -1, must be between 1 and 1099511627776"},
		{PerSecond(1).WithBurst(1), ""},
		{PerSecond(MaxQuota).WithBurst(MaxQuota), ""},
		{PerSecond(MaxQuota).WithBurst(MaxQuota + 1), "burst is 1099511627777,"},

		// A burst takes burst*window/quota to return, at most MaxWindow. The products exceed 64 bits.
		{Per(1, MaxWindow).WithBurst(2), "burst is 2, which at 1 units per 8784h takes longer than 8784h"},
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
