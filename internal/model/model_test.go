package model

import (
	"errors"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/limit"
)

func TestNewRefuses(t *testing.T) {
	for _, test := range []struct {
		l    limit.Limit
		a    limit.Algorithm
		want error
	}{
		{limit.PerMinute(0), limit.SlidingLog(), limit.ErrInvalidLimit},
		{limit.PerMinute(1), limit.SlidingCounter(0, limit.Strict), limit.ErrInvalidAlgorithm},
		{limit.PerMinute(1), limit.Automatic(), limit.ErrInvalidAlgorithm},
		{limit.PerMinute(1), limit.Concurrency(), limit.ErrInvalidAlgorithm},
		{limit.Concurrent(1), limit.Concurrency(), limit.ErrInvalidAlgorithm},
		{limit.Concurrent(1), limit.GCRA(), limit.ErrInvalidAlgorithm},
		{limit.PerCalendar(1, limit.CalendarDay, time.UTC), limit.SlidingLog(), limit.ErrInvalidAlgorithm},
	} {
		if m, err := New(test.l, test.a); !errors.Is(err, test.want) {
			t.Errorf("New(%v, %v) = %v, %v, want %v", test.l, test.a, m, err, test.want)
		}
	}
}

func TestCostsThatCannotBeGranted(t *testing.T) {
	for _, a := range limit.Algorithms() {
		l := limit.PerMinute(20)
		m, err := New(l, a)
		if err != nil {
			t.Fatal(err)
		}
		for _, cost := range []int64{-1, 0, a.Capacity(l) + 1, 1 << 62} {
			if out := m.Decide(1_000_000, cost); out != (Outcome{Remaining: a.Capacity(l), Stamp: 1_000_000}) {
				t.Errorf("%v: cost %d: %+v", a, cost, out)
			}
		}
	}
}

func TestCloneIsIndependent(t *testing.T) {
	for _, a := range limit.Algorithms() {
		m, err := New(limit.PerMinute(20), a)
		if err != nil {
			t.Fatal(err)
		}
		m.Decide(1_000_000, 1)
		before := m.Clone().Decide(1_000_000, 1)
		m.Clone().Decide(2_000_000, 1)
		if after := m.Decide(1_000_000, 1); after != before {
			t.Errorf("%v: %+v, before a clone was used %+v", a, after, before)
		}
	}
}
