package trace_test

import (
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/cmd/tierlimit/internal/accesslog"
	"github.com/tierlimit/tierlimit/cmd/tierlimit/internal/nasa"
	"github.com/tierlimit/tierlimit/cmd/tierlimit/internal/trace"
	"github.com/tierlimit/tierlimit/internal/textbook"
)

// The README of the built-in day states approximately how many requests an exact log denies. With the
// seed of package trace, the numbers are exactly 1,030 and 22.
func TestBuiltInDay(t *testing.T) {
	log, err := accesslog.NewReader(nasa.Open())
	if err != nil {
		t.Fatal(err)
	}
	day, err := trace.Load(log, accesslog.KeyHost, accesslog.CostRequests, trace.Default)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		quota       int64
		window      time.Duration
		least, most int
	}{
		{10, time.Minute, 950, 1100},
		{60, 10 * time.Minute, 15, 30},
	}
	for _, test := range tests {
		limiter, worst := textbook.New(test.quota, test.window), textbook.NewWorst(test.window)
		denied := 0
		for _, e := range day.All() {
			if limiter.Allow(e.Key, e.At) {
				worst.Grant(e.Key, e.At)
			} else {
				denied++
			}
		}
		t.Logf("%d per %v: %d of %d denied", test.quota, test.window, denied, day.Len())
		if denied < test.least || denied > test.most {
			t.Errorf("%d per %v: %d denied, want %d to %d", test.quota, test.window, denied, test.least, test.most)
		}
		if worst.Max() != test.quota {
			t.Errorf("%d per %v: worst window %d", test.quota, test.window, worst.Max())
		}
	}
}
