package main

import (
	"math"
	"strings"
	"testing"
)

func TestNumbers(t *testing.T) {
	for _, tc := range []struct{ got, want string }{
		{thousands(0), "0"},
		{thousands(999), "999"},
		{thousands(1000), "1,000"},
		{thousands(4_963_000), "4,963,000"},
		{duration(0.197), "0.20 µs"},
		{duration(999), "999 µs"},
		{duration(1234), "1.23 ms"},
		{short(0.0001), "0"},
		{short(0.012), "0.012"},
		{short(14.96), "15.0"},
		{ratio(1.375), "1.38"},
		{ratio(math.NaN()), "-"},
	} {
		if tc.got != tc.want {
			t.Errorf("got %q, want %q", tc.got, tc.want)
		}
	}
}

// A cell that fell back or failed says so in its name and at the end.
func TestUnsoundCellIsMarked(t *testing.T) {
	c := cell{group: "g", subject: "s", callers: 8}
	r := report{Cells: []cell{c}}
	if strings.Contains(r.footer(), "!") || c.row()[0] != "s" {
		t.Errorf("a sound cell is marked: %q, %q", c.row()[0], r.footer())
	}
	r.Cells[0].decisions[degraded] = 3
	if name := r.tables()[0].rows[0][0]; name != "! s" {
		t.Errorf("an unsound cell is called %q", name)
	}
	if !strings.Contains(r.footer(), "! g, 8 callers, s: 3 degraded") {
		t.Errorf("the footer does not say what is wrong: %q", r.footer())
	}
}
