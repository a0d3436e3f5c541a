package main

import (
	"errors"
	"strings"
	"testing"
)

// Each ratio compares figures of the same round, and a missed goal is an error.
func TestGoals(t *testing.T) {
	// The machine was half as fast in the second round.
	own := []result{{rate: 350, cpu: 30, p99: 4}, {rate: 175, cpu: 60, p99: 8}, {rate: 350, cpu: 30, p99: 4}}
	original := []result{{rate: 100, cpu: 100, p99: 10}, {rate: 50, cpu: 200, p99: 20}, {rate: 100, cpu: 100, p99: 10}}
	var out strings.Builder
	if err := judge(&out, goalsBeside("64 callers", own, original, original)); err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
	if !strings.Contains(out.String(), " 3.50      1.00       met\n") {
		t.Error(out.String())
	}
	for what, missed := range map[string][]goal{
		"rate":    goalsBeside("64 callers", []result{{rate: 299, cpu: 30, p99: 4}}, original, nil),
		"CPU":     goalsBeside("64 callers", []result{{rate: 350, cpu: 34, p99: 4}}, original, nil),
		"p99":     goalsBeside("64 callers", []result{{rate: 350, cpu: 30, p99: 6}}, original, nil),
		"failed":  goalsBeside("64 callers", []result{{rate: 350, cpu: 30, p99: 4}, {rate: 175, cpu: 60, p99: 8, errors: 1}}, original, nil),
		"stopped": goalsStopped("Redis stopped", result{p99: 15.1}),
		"errors":  goalsStopped("Redis stopped", result{p99: 14, errors: 1}),
	} {
		out.Reset()
		if err := judge(&out, missed); !errors.Is(err, errMissed) || strings.Count(out.String(), "MISSED") != 1 {
			t.Errorf("%s: %v\n%s", what, err, out.String())
		}
	}
	if err := judge(&out, goalsStopped("Redis stopped", result{p99: 14})); err != nil {
		t.Error(err)
	}
}
