package simulate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/model"
	"github.com/tierlimit/tierlimit/internal/textbook"
	"github.com/tierlimit/tierlimit/limit"
)

const epoch = 1_790_123_456_789_012

// crowd returns requests of a few keys at random times, in no order.
func crowd(n int) *Traffic {
	random := rand.New(rand.NewPCG(1, 2))
	return New(func(yield func(int64, string) bool) {
		for range n {
			yield(epoch+random.Int64N(int64(n)*100_000), fmt.Sprint("key-", random.IntN(7)))
		}
	})
}

// count computes the result in the obvious way: request by request in order, with all keys at once.
func count(t *testing.T, traffic *Traffic, l limit.Limit, a limit.Algorithm) *Result {
	t.Helper()
	models := make([]model.Model, traffic.Keys())
	granted := make([]struct{ stamps, costs []int64 }, traffic.Keys())
	exact := textbook.New(l.Quota(), l.Window())
	r := &Result{}
	for request := range int32(traffic.Requests()) {
		key, at := traffic.KeyOf(request), traffic.At(request)
		if models[key] == nil {
			var err error
			if models[key], err = model.New(l, a); err != nil {
				t.Fatal(err)
			}
		}
		allowed, right := models[key].Decide(at, 1).Allowed, exact.Allow(traffic.Name(key), at)
		if allowed {
			r.Allowed++
			granted[key].stamps, granted[key].costs = append(granted[key].stamps, at), append(granted[key].costs, 1)
		}
		switch {
		case allowed && !right:
			r.Wrong.Allowed++
		case !allowed && right:
			r.Wrong.Denied++
		}
	}
	for key := range granted {
		most := model.MaxInWindow(granted[key].stamps, granted[key].costs, l.Window().Microseconds())
		if most > r.Worst.Units {
			r.Worst.Units, r.Worst.Key = most, key
		}
	}
	return r
}

func TestRunEqualsCountingByHand(t *testing.T) {
	traffic, l := crowd(2_000), limit.PerMinute(30)
	for _, a := range append(limit.Algorithms(), limit.SlidingCounter(1, limit.Estimate), limit.SlidingCounter(60, limit.Estimate)) {
		want := count(t, traffic, l, a)
		for _, processors := range []int{1, 4} {
			was := runtime.GOMAXPROCS(processors)
			done := 0
			var progress func(int)
			if processors == 1 {
				progress = func(n int) { done += n }
			}
			got, err := traffic.Run(context.Background(), l, a, progress)
			runtime.GOMAXPROCS(was)
			if err != nil {
				t.Fatal(err)
			}
			if got.Allowed != want.Allowed || got.Wrong != want.Wrong || got.Worst.Units != want.Worst.Units || got.Worst.Key != want.Worst.Key {
				t.Errorf("%v: %d allowed, wrong %+v, worst %+v; by hand %d, %+v, %+v", a, got.Allowed, got.Wrong, got.Worst, want.Allowed, want.Wrong, want.Worst)
			}
			var parts Errors
			for _, part := range got.OverTime {
				parts.add(part)
			}
			if parts != got.Wrong {
				t.Errorf("%v: over time %+v, in all %+v", a, parts, got.Wrong)
			}
			if progress != nil && done != traffic.Requests() {
				t.Errorf("%v: progress tells of %d requests of %d", a, done, traffic.Requests())
			}
		}
	}
}

// For a log that is too long for its model, Run uses the textbook's log, which decides the same.
func TestLongLogs(t *testing.T) {
	traffic, l := crowd(20_000), limit.PerMinute(longLog+1)
	r, err := traffic.Run(context.Background(), l, limit.SlidingLog(), nil)
	if err != nil || r.Wrong.Total() != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestRunStops(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := crowd(10).Run(ctx, limit.PerMinute(1), limit.GCRA(), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := crowd(10).Run(context.Background(), limit.PerMinute(0), limit.GCRA(), nil); !errors.Is(err, limit.ErrInvalidLimit) {
		t.Errorf("no limit: %v", err)
	}
	if _, err := crowd(10).Run(context.Background(), limit.PerMinute(1), limit.Automatic(), nil); !errors.Is(err, limit.ErrInvalidAlgorithm) {
		t.Errorf("no algorithm: %v", err)
	}
}

func TestTrafficIsInOrder(t *testing.T) {
	traffic := New(func(yield func(int64, string) bool) {
		for _, r := range []struct {
			at  int64
			key string
		}{{30, "b"}, {10, "a"}, {20, "b"}, {10, "b"}} {
			yield(r.at, r.key)
		}
	})
	var got string
	for request := range int32(traffic.Requests()) {
		got += fmt.Sprint(traffic.At(request), traffic.Name(traffic.KeyOf(request)), " ")
	}
	if want := "10a 10b 20b 30b "; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if first, last := traffic.Span(); !first.Equal(time.UnixMicro(10)) || !last.Equal(time.UnixMicro(30)) {
		t.Errorf("from %v to %v", first, last)
	}
	if first, _ := New(func(func(int64, string) bool) {}).Span(); !first.IsZero() {
		t.Errorf("no requests at all begin at %v", first)
	}
}

// Peaks returns, for each key, the most units that count at once.
func TestPeaks(t *testing.T) {
	traffic := New(func(yield func(int64, string) bool) {
		for i := range int64(9) {
			yield(epoch+i*10e6, "steady") // 6 in a minute
			yield(epoch+i, "burst")       // 9 at once, of which 7 are granted
		}
	})
	if got := traffic.Peaks(limit.PerMinute(7)); got[0] != 6 || got[1] != 7 {
		t.Errorf("%v, want [6 7]", got)
	}
}

// The last request lies in the last part, however long the traffic lasts: over centuries, a float64 does not tell
// the last microsecond from the end. One request without a time, in the year 1, is enough for that.
func TestTrafficOfCenturies(t *testing.T) {
	for _, years := range []int64{1, 285, 286, 2_000} {
		traffic := New(func(yield func(int64, string) bool) {
			const year = 366 * 24 * 3600 * 1_000_000
			_ = yield(epoch-years*year, "a") && yield(epoch, "b") && yield(epoch, "b")
		})
		for n := 1; n <= Parts; n++ {
			if first, last := traffic.part(0, n), traffic.part(2, n); first != 0 || last != n-1 {
				t.Errorf("%d years in %d parts: the first request is in part %d, the last in part %d", years, n, first, last)
			}
		}
	}
}
