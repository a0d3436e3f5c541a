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
