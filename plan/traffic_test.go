package plan_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/plan"
)

// comparesNot is a Traffic that cannot be compared with ==.
type comparesNot []int

func (c comparesNot) Requests() int                       { return len(c) }
func (comparesNot) Wrong(plan.Candidate) (float64, error) { return 0, nil }

// Needs are compared with ==, which panics if the Traffic cannot be compared.
func TestTrafficThatCannotBeComparedIsRefused(t *testing.T) {
	need := plan.Need{Wrong: plan.AtMost(0.1), Traffic: comparesNot{1}}
	for _, err := range []error{need.Validate(), func() error { _, err := plan.Choose(limit.PerMinute(5), need); return err }()} {
		if !errors.Is(err, plan.ErrInvalidNeed) || !strings.Contains(err.Error(), "comparesNot") {
			t.Error(err)
		}
	}
}

// brokenTraffic cannot tell how many requests a candidate decides wrongly.
type brokenTraffic struct{ err error }

func (*brokenTraffic) Requests() int { return 1 }

func (b *brokenTraffic) Wrong(plan.Candidate) (float64, error) { return 0, b.err }

// The error of a need's traffic is returned, and does not count as a candidate that fails the need.
func TestChooseReturnsTheErrorOfTheTraffic(t *testing.T) {
	broken := errors.New("broken")
	_, err := plan.Choose(limit.PerMinute(10), plan.Need{Wrong: plan.AtMost(0), Traffic: &brokenTraffic{broken}})
	if !errors.Is(err, broken) {
		t.Errorf("error %v, want %v", err, broken)
	}
}
