package tiered

import (
	"errors"
	"strings"
	"testing"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// Only one rule of a name can be in force, so a call with two of them is a mistake. The same rule twice is none.
func TestPutInForceRefusesTwoRulesOfAName(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	old := newRule(t, l, "r", limit.PerMinute(9))
	one, err := l.PrepareRule("r", limit.PerMinute(1))
	if err != nil {
		t.Fatal(err)
	}
	two, err := l.PrepareRule("r", limit.PerMinute(2))
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{l.PutInForce(one, two), l.PutInForceFrom("a file", one, two)} {
		if !errors.Is(err, limit.ErrInvalidRule) || !strings.Contains(err.Error(), "1/1m") || !strings.Contains(err.Error(), "2/1m") {
			t.Error(err)
		}
	}
	if r, err := l.Rule("r", limit.PerMinute(9)); r != old || err != nil {
		t.Error(r, err)
	}
	if err := l.PutInForce(one, one); err != nil {
		t.Error(err)
	}
}
