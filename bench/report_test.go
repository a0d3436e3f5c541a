package main

import (
	"errors"
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

// A server that the run has not started may be on another machine.
func TestHeaderSaysWhereTheServerIs(t *testing.T) {
	for url, want := range map[string]bool{"": true, "redis://redis.example.com": false} {
		r := report{Settings: settings{RedisURL: url}}
		if strings.Contains(r.header(), "on this machine") != want || strings.Contains(r.header(), "example.com") {
			t.Errorf("-redis %q: %s", url, r.header())
		}
	}
}

// A cell with unexpected outcomes or errors is marked at its name, and the footer says why.
func TestUnsoundCellIsMarked(t *testing.T) {
	c := cell{group: "g", subject: "s", size: size{callers: 8}, mostly: denied, also: []outcome{allowed}}
	c.calls = [outcomes]uint64{allowed: 4, denied: 6}
	r := report{Cells: []cell{c}}
	if strings.Contains(r.footer(), "! g") || c.row()[0] != "s" {
		t.Errorf("a sound cell is marked: %q, %q", c.row()[0], r.footer())
	}
	for flaw, spoil := range map[string]func(*cell){
		"3 degraded":                  func(c *cell) { c.calls[degraded] = 3 },
		"6 denied":                    func(c *cell) { c.mostly, c.also = allowed, nil },
		"only 4 of 8 denied":          func(c *cell) { c.calls[denied] = 4 },
		"2 times a breaker opened":    func(c *cell) { c.opened = 2 },
		"1 failed, first error: oops": func(c *cell) { c.calls[failed], c.firstErr = 1, errors.New("oops") },
	} {
		r.Cells[0] = c
		spoil(&r.Cells[0])
		if name := r.cellTables()[0].rows[0][0]; name != "! s" {
			t.Errorf("%s: the cell is called %q", flaw, name)
		}
		if want := "! g, 8 callers, s: "; !strings.Contains(r.footer(), want) || !strings.Contains(r.footer(), flaw) {
			t.Errorf("the footer does not say %q: %q", flaw, r.footer())
		}
	}
}
