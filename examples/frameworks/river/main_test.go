package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiertest"
)

func TestJobsAboveTheLimitArePutOff(t *testing.T) {
	limiter, clock := tiertest.New(t)
	called := 0
	worker := &CallWorker{Rule: limiter.MustRule("upstream", limit.PerMinute(2)), Call: func(context.Context, string) error {
		called++
		return nil
	}}
	work := func(tenant string) error {
		return worker.Work(t.Context(), &river.Job[CallArgs]{JobRow: &rivertype.JobRow{}, Args: CallArgs{Tenant: tenant}})
	}
	for minute := range 2 {
		for range 2 {
			if err := work("acme"); err != nil {
				t.Fatal(err)
			}
		}
		// The result must not be an error, which would use up an attempt.
		var snooze *rivertype.JobSnoozeError
		if err := work("acme"); !errors.As(err, &snooze) || (time.Minute-snooze.Duration).Abs() > time.Millisecond {
			t.Errorf("above the limit: %v", err)
		}
		if err := work("globex"); err != nil {
			t.Errorf("another tenant: %v", err)
		}
		if called != 3*(minute+1) {
			t.Errorf("%d calls in minute %d", called, minute)
		}
		clock.Advance(time.Minute)
	}
	worker.Call = func(context.Context, string) error { return errors.New("failed") }
	if err := work("globex"); err == nil || err.Error() != "failed" {
		t.Errorf("a call that failed: %v", err)
	}
}
