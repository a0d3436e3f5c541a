package config

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func overlay(t *testing.T, text string) *Overlay {
	t.Helper()
	o, err := LoadOverlay(File{"o.yaml", []byte(text)})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// The first matching entry adds the settings that a limit's own configuration lacks.
func TestOverlay(t *testing.T) {
	o := overlay(t, `
limits:
  - {match: "shop.user", algorithm: sliding-log, outage: deny, lease: 20}
  - {match: "shop.user*", window: 90s}
  - {match: "*.path_*", need: {above: 0}, unit_multiplier: 5}
  - {match: "shop.*", outage: allow}
  - {match: "nobody", outage: allow}
`)
	c, err := Load(t.Context(), []File{{"f.yaml", []byte(`
domain: shop
descriptors:
  - {key: user, rate_limit: {unit: hour, requests_per_unit: 5}}
  - {key: user, value: ann, rate_limit: {unit: hour, requests_per_unit: 5}}
  - key: tenant
    descriptors: [{key: path, value: /buy, rate_limit: {unit: minute, requests_per_unit: 5}}]
  - {key: own, rate_limit: {unit: hour, requests_per_unit: 5, algorithm: gcra}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: rest, rate_limit: {unit: day, requests_per_unit: 5}}
`)}}, false, o)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range c.Limits() {
		terms := l.Terms.Algorithm.String()
		if !l.Terms.Counted {
			terms = "as there"
		} else if l.Terms.Need.Stated() {
			terms = "need"
		}
		got = append(got, strings.Join([]string{l.StatName, l.Window.String(), terms, l.Terms.Outage.String(), l.Overlay.String()}, " "))
	}
	want := []string{
		"shop.user 1h0m0s sliding-log deny o.yaml:3:5",
		"shop.user_ann 1m30s as there approximate o.yaml:4:5",
		"shop.tenant.path_/buy 5m0s need approximate o.yaml:5:5",
		"shop.own 1h0m0s gcra approximate ",
		"shop.free 0s as there approximate ",
		"shop.rest 24h0m0s as there allow o.yaml:6:5",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	limits := c.Limits()
	if lease := limits[0].Terms.Lease; lease != 20 {
		t.Errorf("lease %d", lease)
	}
	if m := limits[2].Current.GetUnitMultiplier().GetValue(); m != 5 {
		t.Errorf("answers show %d units", m)
	}
	if unit, m := limits[1].Current.GetUnit().String(), limits[1].Current.GetUnitMultiplier().GetValue(); unit != "SECOND" || m != 90 {
		t.Errorf("answers show %d of %s", m, unit)
	}
	if len(c.Warnings) != 1 || !strings.HasPrefix(c.Warnings[0], `o.yaml:7:5: match "nobody" has no effect: `) {
		t.Errorf("%q", c.Warnings)
	}
	if dump := dumped(t, c); !strings.Contains(dump, "shop.rest: unit=DAY requests_per_unit=5, shadow_mode: false, quota_mode: false, outage: allow, overlay: o.yaml:6:5\n") {
		t.Error(dump)
	}
}

// An overlay entry that does not fit its limit is an error that names both places.
func TestOverlayThatDoesNotFit(t *testing.T) {
	o := overlay(t, `limits: [{match: "*", unit_multiplier: 400}]`)
	_, err := Load(t.Context(), []File{{"f.yaml", []byte("domain: d\ndescriptors:\n  - {key: k, rate_limit: {unit: day, requests_per_unit: 5}}")}}, false, o)
	if err == nil || !strings.HasPrefix(err.Error(), "f.yaml:3:26: ") || !strings.HasSuffix(err.Error(), "(with the overlay entry at o.yaml:1:10)") {
		t.Error(err)
	}
}

// Each broken overlay is refused, with line, column and cause.
func TestBrokenOverlays(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"empty":              {"", `:1:1: the file is empty, must have limits`},
		"not YAML":           {"limits: [", `the file is not valid YAML`},
		"a list":             {"- match: x", `:1:1: the file is a list`},
		"a configuration":    {"domain: d", `:1:1: unknown field "domain", must be one of limits`},
		"an entry of text":   {"limits: [x]", `:1:10: an entry of limits is "x"`},
		"no match":           {"limits: [{outage: deny}]", `:1:10: an entry of limits has no match`},
		"nothing":            {"limits: [{match: x}]", `:1:10: an entry of limits has nothing but a match`},
		"unit":               {"limits: [{match: x, unit: day}]", `:1:21: unknown field "unit"`},
		"requests_per_unit":  {"limits: [{match: x, requests_per_unit: 1}]", `:1:21: unknown field "requests_per_unit"`},
		"twice":              {"limits: [{match: x, outage: deny, outage: allow}]", `:1:35: field "outage" is set twice`},
		"algorithm":          {"limits: [{match: x, algorithm: y}]", `:1:32: tierlimit: invalid algorithm`},
		"algorithm and need": {"limits: [{match: x, algorithm: gcra, need: {above: 0}}]", `:1:10: an entry of limits has both an algorithm and a need`},
		"lease":              {"limits: [{match: x, lease: 5}]", `:1:10: lease needs an algorithm`},
		"burst":              {"limits: [{match: x, algorithm: sliding-log, burst: 5}]", `:1:10: burst is set, but only the algorithm gcra has a burst`},
		"window and units":   {"limits: [{match: x, window: 5s, unit_multiplier: 2}]", `:1:29: an entry of limits has both a window`},
		"second document":    {"limits: []\n---\nlimits: []", `o.yaml:2:1: a second document begins here, an overlay must be a single document`},
		"broken second":      {"limits: []\n---\nlimits: [", `o.yaml:3:1: the file is not valid YAML`},
		"too many":           {"limits: [" + strings.Repeat("{match: x, outage: deny}, ", maxOverlayEntries+1) + "]", `:1:1: limits has 1001 entries, must have at most 1000`},
	} {
		_, err := LoadOverlay(File{"o.yaml", []byte(c.text)})
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "o.yaml:") {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	if o := overlay(t, "limits: [{match: a, window: 2h}]"); o.entries[0].says.window != 2*time.Hour {
		t.Errorf("%+v", o)
	}
}
