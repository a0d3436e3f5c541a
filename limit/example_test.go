package limit_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/tierlimit/tierlimit/limit"
)

func ExampleParse() {
	for _, text := range []string{"10/1m", "5/s", "1000/24h", "100/s,burst=20", "10 per minute"} {
		l, err := limit.Parse(text)
		if errors.Is(err, limit.ErrInvalidLimit) {
			fmt.Println(err)
			continue
		}
		fmt.Println(l.Quota(), "units in any", l.WindowString())
	}
	// Output:
	// 10 units in any 1m
	// 5 units in any 1s
	// 1000 units in any 24h
	// 100 units in any 1s
	// tierlimit: invalid limit: "10 per minute" has no "/": write it as QUOTA/WINDOW, like 10/1m
}

// A quota that is sold by the month begins anew at midnight of each first day, in the time zone of the contract.
func ExamplePerCalendar() {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		fmt.Println(err)
		return
	}
	l := limit.PerCalendar(10_000, limit.CalendarMonth, berlin)
	start, end := l.Calendar(time.Date(2026, time.March, 31, 22, 30, 0, 0, time.UTC)) // April has begun in Berlin
	fmt.Println(l)
	fmt.Println(start)
	fmt.Println(end)
	// Output:
	// 10000/month@Europe/Berlin
	// 2026-04-01 00:00:00 +0200 CEST
	// 2026-05-01 00:00:00 +0200 CEST
}

// Under GCRA, the burst determines how many units are granted at once, and by how much a window can exceed the
// quota.
func ExampleLimit_WithBurst() {
	for _, l := range []limit.Limit{
		limit.PerSecond(1000),
		limit.PerSecond(1000).WithBurst(1),
		limit.PerSecond(1000).WithBurst(100),
	} {
		fmt.Println(l, "- at once:", limit.GCRA().Capacity(l), "- in a second, at worst:", limit.GCRA().WorstCase(l))
	}
	// Output:
	// 1000/1s - at once: 1000 - in a second, at worst: 1999
	// 1000/1s,burst=1 - at once: 1 - in a second, at worst: 1000
	// 1000/1s,burst=100 - at once: 100 - in a second, at worst: 1099
}

func ExampleLimit_Validate() {
	fmt.Println(limit.Per(10, 0).Validate())
	// Output: tierlimit: invalid limit: window is 0s, must be between 1ms and 8784h
}

func ExampleParseAlgorithm() {
	a, err := limit.ParseAlgorithm("sliding-counter:k=60")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(a)
	fmt.Println(a.WorstCase(limit.PerMinute(100)))
	// Output:
	// sliding-counter:k=60,strict
	// 100
}

func ExampleAlgorithm_WorstCase() {
	l := limit.PerMinute(100)
	for _, a := range limit.Algorithms() {
		fmt.Println(a, a.WorstCase(l))
	}
	// Output:
	// sliding-log 100
	// sliding-counter:k=16,strict 100
	// gcra 199
	// fixed-window 200
}
