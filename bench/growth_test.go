package main

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

// Redis's time for a decision is plausible for every algorithm, even in a batch, where it is a fraction of a µs. A
// cost that some keys cannot grant is an error.
func TestRedisTime(t *testing.T) {
	s, err := parseSettings([]string{"-redis", redistest.Start(t).URL()}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	b, err := newBench(t.Context(), s, s.RedisURL, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.close() }()
	g := newGrowth(t.Context(), b)
	for _, a := range states() {
		one, err := g.redisTime(t.Context(), a.algorithm, 1000, g.keys(2), 1, 1, 1)
		if err != nil {
			t.Fatal(err)
		}
		each, err := g.redisTime(t.Context(), a.algorithm, 1000, g.keys(64), 1, 1, 64)
		if err != nil {
			t.Fatal(err)
		}
		if one < 1 || each < 0.5 || each > 2*one { // less, except on a busy machine
			t.Errorf("%s: %v µs alone, %v µs as one of 64", a.name, one, each)
		}
		if _, err := g.redisTime(t.Context(), a.algorithm, 1000, g.keys(1), 500, 100, 1); err == nil {
			t.Errorf("%s: denials were measured, without an error", a.name)
		}
	}
	if n := b.control.DBSize(t.Context()).Val(); n > int64(len(states())) { // the keys of the failed measurements
		t.Errorf("%d keys are left", n)
	}
}

func TestPictures(t *testing.T) {
	p := picture{title: "a title", x: "callers", y: "decisions", curves: []curve{
		{"first", []point{{1, 5}, {10, 50}, {1000, 70_000}}},
		{"second", []point{{1, 7}, {10, 7}, {1000, 7}}},
	}}
	text, err := p.svg()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"a title", "callers", "decisions", "first", "second", ">100,000<"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in the picture", want)
		}
	}
	for d := xml.NewDecoder(strings.NewReader(text)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
