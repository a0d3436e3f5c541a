package config

import (
	"errors"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/tierlimit/tierlimit/plan"
)

func load(t testing.TB, text string) *Config {
	t.Helper()
	c, err := Load(t.Context(), []File{{"f.yaml", []byte(text)}}, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// entries parses "key=value,key=value".
func entries(text string) (all []*commonv3.RateLimitDescriptor_Entry) {
	for part := range strings.SplitSeq(text, ",") {
		if part == "" {
			continue
		}
		key, value, _ := strings.Cut(part, "=")
		all = append(all, &commonv3.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	return all
}

const nested = `
domain: shop
descriptors:
  - key: tenant
    value: gold
    descriptors:
      - key: path
        rate_limit: {unit: second, requests_per_unit: 5}
      - key: path
        value: /buy
        shadow_mode: true
        rate_limit: {unit: second, requests_per_unit: 10}
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 20}
  - key: user
    value: ann
    rate_limit: {unit: Minute, requests_per_unit: 30}
  - key: user
    value: root
  - key: named
    rate_limit: {name: n, unit: DAY, requests_per_unit: 1}
  - key: both
    value: v
    rate_limit: {unit: day, requests_per_unit: 15}
    descriptors:
      - key: inner
        value: w
        rate_limit: {unit: week, requests_per_unit: 25}
  - key: free
    rate_limit: {unlimited: true}
`

// A limit applies only at exactly the depth of the request. A child for key and value takes precedence over one for
// the key alone.
func TestMatch(t *testing.T) {
	c := load(t, nested)
	for asked, want := range map[string]string{
		"":                       "",
		"tenant=gold":            "",
		"tenant=gold,path=/x":    "shop.tenant_gold.path 5 SECOND",
		"tenant=gold,path=/buy":  "shop.tenant_gold.path_/buy 10 SECOND",
		"tenant=gold,path=/x,a=": "",
		"tenant=tin,path=/x":     "",
		"user=bob":               "shop.user 20 MINUTE",
		"user=":                  "shop.user 20 MINUTE",
		"user=ann":               "shop.user_ann 30 MINUTE",
		"user=root":              "",
		"user=bob,path=/x":       "",
		"named=x":                "shop.named 1 DAY",
		"both=v":                 "shop.both_v 15 DAY",
		"both=v,inner=w":         "shop.both_v.inner_w 25 WEEK",
		"both=v,inner=x":         "",
		"both=x":                 "",
		"path=/x":                "",
		"free=x":                 "shop.free unlimited",
	} {
		m := c.Match("shop", entries(asked))
		got := ""
		if l := m.Limit; l != nil {
			got = l.StatName + " unlimited"
			if !l.Unlimited {
				got = strings.Join([]string{l.StatName, itoa(l.Current.GetRequestsPerUnit()), l.Current.GetUnit().String()}, " ")
			}
			if l.StatName != m.StatName || m.Dynamic || m.Values != nil {
				t.Errorf("%s: %+v", asked, m)
			}
		}
		if got != want {
			t.Errorf("%s: %q, want %q", asked, got, want)
		}
	}
	if !c.Match("shop", entries("tenant=gold,path=/buy")).Limit.Shadow {
		t.Error("not in shadow mode")
	}
	if m := c.Match("other", entries("user=x")); m.Limit != nil || c.HasDomain("other") || !c.HasDomain("shop") {
		t.Errorf("%+v", m)
	}
	if l := c.Match("shop", entries("named=x")).Limit; l.Name != "n" || l.Current.GetName() != "n" {
		t.Errorf("%+v", l)
	}
}

func itoa(n uint32) string {
	digits := ""
	for ; n > 0 || digits == ""; n /= 10 {
		digits = string(rune('0'+n%10)) + digits
	}
	return digits
}

// A "*" matches any text, including none, at any position. An exact key and value takes precedence over patterns, and
// patterns over the key alone. Of several patterns, the first in the file counts.
func TestPatterns(t *testing.T) {
	c := load(t, `
domain: d
descriptors:
  - {key: k, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: k, value: "a*", rate_limit: {unit: hour, requests_per_unit: 2}}
  - {key: k, value: "ab*", rate_limit: {unit: hour, requests_per_unit: 3}}
  - {key: k, value: "x*y", rate_limit: {unit: hour, requests_per_unit: 4}}
  - {key: k, value: "p*q*r", rate_limit: {unit: hour, requests_per_unit: 5}}
  - {key: k, value: "abc", rate_limit: {unit: hour, requests_per_unit: 6}}
  - {key: k, value: "s*t*u*v", rate_limit: {unit: hour, requests_per_unit: 9}}
  - {key: only, value: "v*", rate_limit: {unit: hour, requests_per_unit: 7}}
  - {key: "pre*", rate_limit: {unit: hour, requests_per_unit: 8}}
`)
	for asked, want := range map[string]uint32{
		"k=z": 1, "k=": 1, "k=a": 2, "k=ab": 2, "k=abd": 2, "k=abc": 6,
		"k=xy": 4, "k=x-y": 4, "k=x": 1, "k=y": 1, "k=xyz": 1,
		"k=pqr": 5, "k=p1q2r": 5, "k=pr": 1, "k=prq": 1, "k=qpr": 1, "k=pqqr": 5, "k=s1t2u3v": 9, "k=sutv": 1,
		"only=v1": 7, "only=w": 0, "prefix=1": 8,
	} {
		m := c.Match("d", entries(asked))
		if got := m.Limit; want == 0 && got != nil || want > 0 && (got == nil || got.Current.GetRequestsPerUnit() != want) {
			t.Errorf("%s: %+v, want %d", asked, got, want)
		}
	}
	overlap := load(t, "domain: d\ndescriptors: [{key: k, value: 'ab*ba', rate_limit: {unit: hour, requests_per_unit: 1}}]")
	if overlap.Match("d", entries("k=aba")).Limit != nil || overlap.Match("d", entries("k=abba")).Limit == nil {
		t.Error("beginning and end of a pattern overlap in what it matches")
	}
}

// Match returns the values that share a count, and the name of the statistics.
func TestSharesAndNames(t *testing.T) {
	c := load(t, `
domain: d
descriptors:
  - {key: file, value: "test*", share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: file, value: test1, rate_limit: {unit: hour, requests_per_unit: 1}}
  - key: dir
    value: "top/*"
    share_threshold: true
    descriptors:
      - key: dir
        value: "in/*"
        share_threshold: true
        rate_limit: {unit: hour, requests_per_unit: 1}
      - key: kind
        detailed_metric: true
        rate_limit: {unit: hour, requests_per_unit: 1}
      - key: plain
        value_to_metric: true
        rate_limit: {unit: hour, requests_per_unit: 1}
  - key: route
    value_to_metric: true
    descriptors:
      - key: method
        value: GET
        value_to_metric: true
        descriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 1}}]
      - key: method
        value: "P*"
        descriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 1}}]
      - key: verb
        value: "read*"
        value_to_metric: true
        descriptors: [{key: user, detailed_metric: true, rate_limit: {unit: hour, requests_per_unit: 1}}]
      - key: zone
        value: "z*"
        value_to_metric: true
        share_threshold: true
        rate_limit: {unit: hour, requests_per_unit: 1}
  - {key: detail, detailed_metric: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: loud, value: "w*", value_to_metric: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: quiet, value: "w*", rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: "any*", value: v, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: "every*", share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: ends_, rate_limit: {unit: hour, requests_per_unit: 1}}
`)
	for asked, want := range map[string]struct{ name, values string }{
		"file=test1":                    {"d.file_test1", ""},
		"file=test2":                    {"d.file_test*", "test*"},
		"dir=top/a,dir=in/b":            {"d.dir_top/*.dir_in/*", "top/*|in/*"},
		"dir=top/a,kind=pdf":            {"d.dir_top/*.kind_pdf", "top/*|"},
		"dir=top/a,kind=":               {"d.dir_top/*.kind", "top/*|"},
		"dir=top/a,plain=x":             {"d.dir_top/*.plain_x", "top/*|"},
		"route=r1,method=GET,user=u":    {"d.route_r1.method_GET.user", ""},
		"route=r1,method=POST,user=u":   {"d.route_r1.method_P*.user", ""},
		"route=r1,verb=read-all,user=u": {"d.route_r1.verb_read-all.user_u", ""},
		"route=r1,zone=z1":              {"d.route_r1.zone_z*", "|z*"},
		"detail=x":                      {"d.detail_x", ""},
		"loud=w1":                       {"d.loud_w1", ""},
		"quiet=w1":                      {"d.quiet_w*", ""},
		// As in envoyproxy/ratelimit, if the key contains a *.
		"anything=v": {"d.anything_any*_v", ""},
		"everyone=x": {"d.everyone_every*", "every*"},
		// As there, if the key ends with a _ that separates it from an empty value.
		"ends=":   {"d.ends", ""},
		"ends_=x": {"d.ends_", ""},
	} {
		m := c.Match("d", entries(asked))
		if m.Limit == nil || m.StatName != want.name || strings.Join(m.Values, "|") != want.values {
			t.Errorf("%s: %+v, want %+v", asked, m, want)
		}
		if m.Dynamic != (m.StatName != m.Limit.StatName) && !strings.HasPrefix(asked, "dir") {
			t.Errorf("%s: dynamic %v, %q and %q", asked, m.Dynamic, m.StatName, m.Limit.StatName)
		}
	}
}

// Domains of several files are merged only if MERGE_DOMAIN_CONFIG says so.
func TestMergedDomains(t *testing.T) {
	files := []File{
		{"b.yaml", []byte("domain: d\ndescriptors: [{key: k2, rate_limit: {unit: hour, requests_per_unit: 2}}]")},
		{"a.yaml", []byte("domain: d\ndescriptors: [{key: k1, rate_limit: {unit: hour, requests_per_unit: 1}}]")},
	}
	c, err := Load(t.Context(), files, true, nil)
	if err != nil {
		t.Fatal(err)
	}
	for asked, want := range map[string]int64{"k1=": 1, "k2=": 2} {
		if l := c.Match("d", entries(asked)).Limit; l == nil || l.RequestsPerUnit() != want {
			t.Errorf("%s: %+v", asked, l)
		}
	}
	if _, err := Load(t.Context(), files, false, nil); err == nil || !strings.HasPrefix(err.Error(), `b.yaml:1:1: domain "d" is also in another file`) {
		t.Error(err)
	}
	if _, err := Load(t.Context(), append(files, files[0]), true, nil); err == nil || !strings.Contains(err.Error(), `descriptor "d.k2" is defined twice`) {
		t.Error(err)
	}
}

// The fields that only this service has are read.
func TestOwnFields(t *testing.T) {
	c := load(t, `
domain: d
descriptors:
  - {key: plain, rate_limit: {unit: minute, requests_per_unit: 9}}
  - {key: log, rate_limit: {unit: minute, unit_multiplier: 5, requests_per_unit: 9, algorithm: sliding-log, outage: deny, lease: 20}}
  - {key: odd, rate_limit: {window: 90s, requests_per_unit: 9, algorithm: "sliding-counter:k=60,strict"}}
  - {key: fine, rate_limit: {window: 250ms, requests_per_unit: 9}}
  - {key: gcra, rate_limit: {unit: second, requests_per_unit: 100, algorithm: gcra, burst: 7}}
  - {key: need, rate_limit: {unit: hour, requests_per_unit: 1000, need: {above: 0.1, late: 0.05, bytes: 500}}}
  - {key: auto, rate_limit: {unit: hour, requests_per_unit: 1000, algorithm: auto}}
`)
	of := func(key string) *Limit { return c.Match("d", entries(key+"=")).Limit }
	for key, want := range map[string]string{
		"plain": "1m0s false auto approximate 0 0 MINUTE 0",
		"log":   "5m0s true sliding-log deny 20 0 MINUTE 5",
		"odd":   "1m30s true sliding-counter:k=60,strict approximate 0 0 SECOND 90",
		"fine":  "250ms false auto approximate 0 0 UNKNOWN 0",
		"gcra":  "1s true gcra approximate 0 7 SECOND 0",
		"need":  "1h0m0s true auto approximate 0 0 HOUR 0",
		"auto":  "1h0m0s true auto approximate 0 0 HOUR 0",
	} {
		l := of(key)
		got := strings.Join([]string{l.Window.String(), map[bool]string{true: "true", false: "false"}[l.Terms.Counted], l.Terms.Algorithm.String(),
			l.Terms.Outage.String(), itoa(uint32(l.Terms.Lease)), itoa(uint32(l.Terms.Burst)), l.Current.GetUnit().String(), itoa(l.Current.GetUnitMultiplier().GetValue())}, " ")
		if got != want {
			t.Errorf("%s: %s, want %s", key, got, want)
		}
	}
	if n := of("need").Terms.Need; n != (plan.Need{Above: plan.AtMost(0.1), Late: plan.AtMost(0.05), Bytes: 500}) {
		t.Errorf("%+v", n)
	}
	if units := of("plain").Current.GetUnitMultiplier(); units != nil {
		t.Errorf("answers show %v units, although the configuration states no number", units)
	}
	if WindowOf(ratelimitv3.RateLimitResponse_RateLimit_YEAR, 1<<32-1) <= 0 || WindowOf(0, 3) != 0 {
		t.Error("windows of the longest and of no unit")
	}
}

// No files, as in an empty directory, are a configuration that limits nothing. There is a warning, because nothing else
// shows it.
func TestNoFilesAreAcceptedWithAWarning(t *testing.T) {
	c, err := Load(t.Context(), nil, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"there is no domain: all requests are allowed"}; !slices.Equal(c.Warnings, want) {
		t.Errorf("%q, want %q", c.Warnings, want)
	}
}

// What is accepted without effect gets a warning. YAML's aliases, merges and words for booleans are read.
func TestAcceptedWithWarnings(t *testing.T) {
	c := load(t, `
domain: d
unit: day
descriptors:
  - &a
    key: k
    shadow_mode: yes
    rate_limit: &limit {unit: day, requests_per_unit: 1, shadow_mode: true}
  - <<: *a
    key: l
  - key: 7
    value: 12
    rate_limit: {<<: *limit, requests_per_unit: 0x10}
  - {key: m, quota_mode: true, key: n}
  - {key: bare, shadow_mode: true}
  - {key: empty, rate_limit: , descriptors: , metadata: }
  - {key: version, value: 2022-11-28, rate_limit: {<<: *limit, requests_per_unit: 3}}
---
domain: e
`)
	for asked, want := range map[string]int64{"k=": 1, "l=": 1, "7=12": 16, "version=2022-11-28": 3} {
		if l := c.Match("d", entries(asked)).Limit; l == nil || l.RequestsPerUnit() != want || l.Shadow != (want == 1) {
			t.Errorf("%s: %+v", asked, l)
		}
	}
	got := strings.Join(c.Warnings, "\n")
	for _, want := range []string{
		`f.yaml:18:1: a second document begins here; only the first one is read`,
		`f.yaml:3:1: field "unit" has no effect in the file`,
		`f.yaml:8:58: field "shadow_mode" has no effect in rate_limit`,
		`f.yaml:14:32: field "key" is set twice; the last one counts`,
		`f.yaml:14:5: shadow_mode and quota_mode have no effect on "d.n", which has no rate_limit`,
		`f.yaml:15:5: shadow_mode and quota_mode have no effect on "d.bare", which has no rate_limit`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no warning %s in\n%s", want, got)
		}
	}
}

// A descriptor that merges another one, or has a field twice, is read as envoyproxy/ratelimit reads it: a rate_limit
// takes what it does not say itself from the one before it, and fields count in the order in which they stand.
func TestMergedFields(t *testing.T) {
	c := load(t, `
domain: d
descriptors:
  - &base
    key: a
    shadow_mode: true
    metadata: {x: 1}
    rate_limit: &limit {unit: minute, requests_per_unit: 5}
  - &other {key: o, rate_limit: {unit: hour, requests_per_unit: 9}}
  - <<: *base
    key: part
    metadata: {y: 2}
    rate_limit: {requests_per_unit: 10}
  - key: before
    rate_limit:
      requests_per_unit: 10
      <<: *limit
  - key: twice
    rate_limit: {unit: minute, requests_per_unit: 3}
    rate_limit: {requests_per_unit: 7}
  - key: nothing
    rate_limit: {unit: day, requests_per_unit: 3}
    rate_limit:
  - <<: [*base, *other]
    key: list
`)
	for key, want := range map[string]int64{"a": 5, "o": 9, "part": 10, "before": 5, "twice": 7, "list": 5} {
		l := c.Match("d", entries(key+"=")).Limit
		if l == nil || l.RequestsPerUnit() != want || (l.Window == time.Minute) != (key != "o") || l.Shadow != (key == "a" || key == "part" || key == "list") {
			t.Errorf("%s: %+v", key, l)
		}
	}
	if c.Match("d", entries("nothing=")).Limit != nil {
		t.Error("a rate_limit that is taken back is still there")
	}
	if metadata := c.Match("d", entries("part=")).Limit.Metadata.GetFields(); len(metadata) != 2 {
		t.Errorf("metadata: %v", metadata)
	}
	got := strings.Join(c.Warnings, "\n")
	for _, want := range []string{
		`f.yaml:16:7: field "requests_per_unit" is overridden by the "<<" after it; put the "<<" first`,
		`f.yaml:20:5: field "rate_limit" is set twice; the last one counts`,
		`f.yaml:23:5: field "rate_limit" is set twice; the last one counts`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no warning %s in\n%s", want, got)
		}
	}
	if len(c.Warnings) != 3 {
		t.Errorf("more warnings than expected:\n%s", got)
	}
}

// Metadata has the types that YAML 1.1 gives it, as in envoyproxy/ratelimit.
func TestMetadata(t *testing.T) {
	c := load(t, `
domain: d
descriptors:
  - key: k
    rate_limit: {unit: day}
    metadata: {on: yes, ~: no name, since: 2022-11-28, list: [off, 010, 1.5, ~, "yes", 2001-12-14 21:59:43.10 -5], deep: [{no: a, 0x10: b, 1.50: c, ~: d, "off": e, 2022-11-28: f}]}
`)
	deep := []any{map[string]any{"false": "a", "16": "b", "1.5": "c", "<nil>": "d", "off": "e", "2022-11-28": "f"}}
	want := map[string]any{"on": true, "": "no name", "deep": deep, "since": "2022-11-28", "list": []any{false, 8.0, 1.5, nil, "yes", "2001-12-14 21:59:43.10 -5"}}
	if got := c.Limits()[0].Metadata.AsMap(); !reflect.DeepEqual(got, want) {
		t.Errorf("%v\nwant %v", got, want)
	}
}

// A tag says what a value is, quotes or not, as in envoyproxy/ratelimit.
func TestTags(t *testing.T) {
	c := load(t, `
domain: d
descriptors:
  - key: k
    shadow_mode: !!bool "true"
    rate_limit: {unit: day, unlimited: !!bool 'no', requests_per_unit: !!int "5"}
    metadata: {a: !!bool "yes", b: !!str yes, deep: {!!str on: x, !!bool "off": z}}
`)
	l := c.Limits()[0]
	want := map[string]any{"a": true, "b": "yes", "deep": map[string]any{"on": "x", "false": "z"}}
	if got := l.Metadata.AsMap(); !reflect.DeepEqual(got, want) || !l.Shadow || l.Unlimited || l.RequestsPerUnit() != 5 {
		t.Errorf("%v\nwant %v, %+v", got, want, l)
	}
}

// Programs that write YAML write some texts as !!binary, which is base64. Names of fields and aliases may be written so, too.
func TestBinaryTexts(t *testing.T) {
	c := load(t, `
domain: !!binary ZA==
descriptors:
  - key: &k !!binary aw==
    value: !!binary |
      aGVs
      bG8=
    !!binary cmF0ZV9saW1pdA==: {unit: !!binary ZGF5, requests_per_unit: 5}
    metadata: {!!binary YQ==: !!binary aGVsbG8=}
  - {key: other, value: *k, rate_limit: {unit: day}}
`)
	var paths []string
	for _, l := range c.Limits() {
		paths = append(paths, l.StatName)
	}
	if want := []string{"d.k_hello", "d.other_k"}; !slices.Equal(paths, want) {
		t.Errorf("%q, want %q", paths, want)
	}
	if got := c.Limits()[0].Metadata.AsMap(); !reflect.DeepEqual(got, map[string]any{"a": "hello"}) {
		t.Errorf("%v", got)
	}
}

// Whatever follows a file's first document is not read.
func TestBrokenSecondDocument(t *testing.T) {
	c := load(t, "domain: d\n---\n[")
	if want := "f.yaml:3:1: everything after the first document is ignored; the file is not valid YAML: did not find expected node content"; !slices.Equal(c.Warnings, []string{want}) {
		t.Errorf("%q", c.Warnings)
	}
}

// The first word of a second document may be no YAML, too. The mistake is not one of the first document, whatever stands
// before that.
func TestBrokenBeginningOfSecondDocument(t *testing.T) {
	for _, rest := range []string{"---\n@", "---\n\tx: 1", "--- x: y", "---\t@", "--- !<x y\n", "...\n@", "--- x\r\ny: 1\r\n", "%YAML 1.1\n  - x: y\n", "%TAG ! !\n: y\n"} {
		for _, begin := range []string{"", "---\n", "\ufeff", "%YAML 1.1\n# c\n\n--- # c\n"} {
			c := load(t, begin+"domain: d\n"+rest)
			if !c.HasDomain("d") || len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0], "everything after the first document is ignored") {
				t.Errorf("%q: %q", begin+"domain: d\n"+rest, c.Warnings)
			}
		}
	}
	for _, text := range []string{"domain: [\n---\n@", "domain: \"\n---\n\"", "---\n@", "domain: @\n--- x: y", "domain: [\n%YAML 1.1\n]", "domain: d\n% x\n: y\n"} {
		if _, err := Load(t.Context(), []File{{"f.yaml", []byte(text)}}, false, nil); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// The dump shows a limit's window and outage policy even if it names no algorithm.
func TestDump(t *testing.T) {
	c := load(t, `
domain: d
descriptors:
  - {key: a, rate_limit: {unit: week, requests_per_unit: 5}}
  - {key: b, rate_limit: {window: 90m, requests_per_unit: 5}}
  - {key: c, rate_limit: {unit: minute, unit_multiplier: 5, requests_per_unit: 5, outage: deny}}
  - {key: d, rate_limit: {unlimited: true}}
`)
	const modes = ", shadow_mode: false, quota_mode: false"
	want := "d.a: unit=WEEK requests_per_unit=5" + modes + "\n" +
		"d.b: unit=SECOND requests_per_unit=5" + modes + ", window: 1h30m0s\n" +
		"d.c: unit=MINUTE requests_per_unit=5" + modes + ", window: 5m0s, outage: deny\n" +
		"d.d: unit=UNKNOWN requests_per_unit=0" + modes + ", unlimited: true\n"
	if got := dumped(t, c); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// dumped returns what a configuration dumps.
func dumped(t *testing.T, c *Config) string {
	t.Helper()
	var b strings.Builder
	if err := c.Dump(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// failing accepts one write and then fails. It records the length of the largest.
type failing struct{ pieces, largest int }

func (f *failing) Write(p []byte) (int, error) {
	f.pieces, f.largest = f.pieces+1, max(f.largest, len(p))
	if f.pieces > 1 {
		return 0, io.ErrClosedPipe
	}
	return len(p), nil
}

// Dump writes line by line, and stops when a write fails.
func TestDumpIsNotKept(t *testing.T) {
	c := load(t, "domain: d\ndescriptors:\n"+"  - {key: a, rate_limit: {unit: week, requests_per_unit: 5}}\n  - {key: b, rate_limit: {unit: week, requests_per_unit: 5}}\n")
	var f failing
	if err := c.Dump(&f); !errors.Is(err, io.ErrClosedPipe) || f.pieces != 2 || f.largest > 100 {
		t.Errorf("%v, %+v", err, f)
	}
}

// Tags that do not fit, and whole numbers of 64 bits, are text where text belongs. Names may have tags that are not
// YAML's own.
func TestRareTags(t *testing.T) {
	c := load(t, `
domain: d
descriptors:
  - {!own key: !own 1.5, value: !!int a, rate_limit: {unit: day, !!own requests_per_unit: 1}}
  - {key: 18446744073709551615, rate_limit: {unit: day, requests_per_unit: 2}}
`)
	for asked, want := range map[string]int64{"1.5=a": 1, "18446744073709551615=": 2} {
		if l := c.Match("d", entries(asked)).Limit; l == nil || l.RequestsPerUnit() != want {
			t.Errorf("%s: %+v", asked, l)
		}
	}
}
