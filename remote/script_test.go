package remote

import (
	"context"
	"testing"

	"pgregory.net/rapid"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// epoch is where virtual time starts in these tests: an odd moment of 2026.
const epoch = 1_790_123_456_789_012

// decide runs one entry at a moment of virtual time.
func decide(t testing.TB, s *Script, key string, rule *Rule, at, cost int64) Reply {
	t.Helper()
	replies, err := s.Run(context.Background(), []Entry{{Key: key, Rule: rule, Cost: cost}}, at)
	if err != nil {
		t.Fatal(err)
	}
	return replies[0]
}

func newRule(t rapid.TB, l limit.Limit, a limit.Algorithm) *Rule {
	t.Helper()
	rule, err := NewRule(l, a)
	if err != nil {
		t.Fatalf("%v under %v: %v", l, a, err)
	}
	return rule
}
