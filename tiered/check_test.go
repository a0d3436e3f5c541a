package tiered

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// A rule that is nil, not made by the limiter, or of another limiter is a mistake in every call of several requests,
// wherever it stands. Nothing is charged. The mistake is counted for the limiter's own rules only.
func TestRulesOfOthersAreMistakes(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	l, other := newLimiterOn(t, client, redistest.Prefix()), newLimiterOn(t, client, redistest.Prefix())
	own := newRule(t, l, "own", limit.PerHour(10))
	for name, rule := range map[string]*Rule{
		"nil": nil, "zero": {}, "another's": newRule(t, other, "another", limit.PerHour(10)),
		"another's dry run": newRule(t, other, "dry", limit.PerHour(10), DryRun()),
	} {
		t.Run(name, func(t *testing.T) {
			wrong, right := Request{Rule: rule, Key: name, Cost: 1}, Request{Rule: own, Key: name, Cost: 1}
			before, calls := l.Stats().Rules[0].Errors.Invalid, uint64(0)
			for _, requests := range [][]Request{{wrong}, {wrong, right}, {right, wrong}} {
				for call, err := range callsOfSeveral(l, requests) {
					if !errors.Is(err, limit.ErrInvalidRule) {
						t.Errorf("%s of %d: %v", call, len(requests), err)
					}
					calls += uint64(len(requests) - 1)
				}
			}
			if counted := l.Stats().Rules[0].Errors.Invalid - before; counted != calls {
				t.Errorf("%d mistakes are counted, of %d calls", counted, calls)
			}
			if d, err := own.Peek(context.Background(), name, 1); err != nil || d.Remaining != 10 {
				t.Errorf("%+v, %v", d, err)
			}
		})
	}
	for _, rule := range other.Stats().Rules {
		if rule.Errors.Total() != 0 {
			t.Errorf("the other limiter has counted %+v", rule)
		}
	}
}

// The error about a key or a cost names the rule. Otherwise nobody could tell which of several requests is wrong, or which
// limit of a middleware, whose log has nothing but the error.
func TestMistakesNameTheRule(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	right := Request{Rule: newRule(t, l, "right", limit.PerHour(10)), Key: "k", Cost: 1}
	wrong := newRule(t, l, "wrong", limit.PerHour(10))
	for _, request := range []Request{
		{Rule: wrong, Key: "", Cost: 1},
		{Rule: wrong, Key: strings.Repeat("k", limit.MaxKey+1), Cost: 1},
		{Rule: wrong, Key: "k", Cost: -1},
		{Rule: wrong, Key: "k", Cost: 11},
	} {
		for call, err := range callsOfSeveral(l, []Request{right, request}) {
			if err == nil || !strings.Contains(err.Error(), `rule "wrong"`) {
				t.Errorf("%s: %v", call, err)
			}
		}
	}
}

// Mistakes about the call as a whole, such as too many requests, are counted for each request, by all calls.
func TestMistakesInCallsOfSeveralAreCounted(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	r := newRule(t, l, "r", limit.PerHour(10))
	many := make([]Request, MaxTogether+1)
	for i := range many {
		many[i] = Request{Rule: r, Key: "k", Cost: 1}
	}
	want := uint64(0)
	for call, err := range callsOfSeveral(l, many) {
		want += uint64(len(many))
		if got := l.Stats().Rules[0].Errors.Invalid; !errors.Is(err, limit.ErrInvalidRule) || got != want {
			t.Errorf("%s: %v, %d mistakes counted, want %d", call, err, got, want)
		}
	}
	for _, life := range []time.Duration{time.Microsecond, time.Second} { // too short, and another than that of the request
		want++
		_, _, err := l.HoldAll(context.Background(), life, Request{Rule: r, Key: "k", Cost: 1, Hold: time.Hour})
		if got := l.Stats().Rules[0].Errors.Invalid; !errors.Is(err, limit.ErrInvalidHold) || got != want {
			t.Errorf("%v, %d mistakes counted, want %d", err, got, want)
		}
	}
}

// callsOfSeveral makes each call that takes several requests, and yields its name and error.
func callsOfSeveral(l *Limiter, requests []Request) func(func(string, error) bool) {
	ctx := context.Background()
	return func(yield func(string, error) bool) {
		for name, call := range map[string]func() error{
			"AllowAll":  func() error { _, err := l.AllowAll(ctx, requests...); return err },
			"AllowEach": func() error { _, err := l.AllowEach(ctx, requests...); return err },
			"TakeAll":   func() error { _, _, err := l.TakeAll(ctx, requests...); return err },
			"HoldAll":   func() error { _, _, err := l.HoldAll(ctx, time.Second, requests...); return err },
		} {
			if !yield(name, call()) {
				return
			}
		}
	}
}
