package config

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/tierlimit/tierlimit/limit"
)

// Each broken file is refused, with line, column and cause.
func TestBrokenFiles(t *testing.T) {
	const top = "domain: d\ndescriptors:\n"
	const one = top + "  - key: k\n    rate_limit:\n      unit: day\n"
	for name, c := range map[string]struct{ text, want string }{
		"empty":                 {"", `:1:1: the file is empty, must have a domain`},
		"comment":               {"# nothing\n", `:1:1: the file is empty, must have a domain`},
		"not YAML":              {"'''\n", `:2:1: the file is not valid YAML: found unexpected end of stream`},
		"tab":                   {"domain: d\ndescriptors:\n\t- key: k\n", `:3:1: the file is not valid YAML: found character that cannot start any token`},
		"unclosed":              {"domain: [d\n", `:1:1: the file is not valid YAML: did not find expected ',' or ']'`},
		"list":                  {"- domain: d\n", `:1:1: the file is a list, must be a mapping (NAME: VALUE)`},
		"scalar":                {"hello\n", `:1:1: the file is "hello", must be a mapping (NAME: VALUE)`},
		"no domain":             {"descriptors: []\n", `:1:1: the file has no domain`},
		"empty domain":          {"domain: ''\n", `:1:1: the file has no domain`},
		"domain is a list":      {"domain: [a]\n", `:1:9: domain is a list, must be text`},
		"unknown field":         {"domain: d\ndescriptor: []\n", `:2:1: unknown field "descriptor", must be one of domain, descriptors`},
		"misspelled rate_limit": {top + "  - key: k\n    ratelimit: {}\n", `:4:5: unknown field "ratelimit", must be one of key, value, rate_limit,`},
		"misspelled quota":      {one + "      requestsperunit: 5\n", `:6:7: unknown field "requestsperunit", must be one of unit, requests_per_unit,`},
		"name is no text":       {"0.25: d\n", `:1:1: a field's name is "0.25", must be text`},
		"name is tagged":        {"!!int 5: d\n", `:1:1: a field's name is "5", must be text`},
		"descriptors a mapping": {"domain: d\ndescriptors: {key: k}\n", `:2:14: descriptors is a mapping, must be a list`},
		"descriptors of text":   {"domain: d\ndescriptors: [a]\n", `:2:15: a descriptor is "a", must be a mapping (NAME: VALUE)`},
		"no key":                {top + "  - value: v\n", `:3:5: a descriptor has no key`},
		"key is a float":        {top + "  - key: 1.5\n", `:3:10: key is "1.5", which YAML reads as a float: write it in quotes`},
		"no base64":             {top + "  - {key: k, value: !!binary '*'}\n", `:3:21: "*" is tagged !!binary, must be UTF-8 text in base64`},
		"not UTF-8":             {top + "  - {key: k, value: !!binary /w==}\n", `:3:21: "/w==" is tagged !!binary, must be UTF-8 text in base64`},
		"flag in base64":        {top + "  - {key: k, quota_mode: !!binary dHJ1ZQ==}\n", `:3:26: quota_mode is "true", must be true or false`},
		"twice":                 {top + "  - {key: k, value: v}\n  - {key: k, value: v}\n", `:4:5: descriptor "d.k_v" is defined twice`},
		"twice, deep":           {top + "  - key: k\n    descriptors: [{key: l}, {key: l}]\n", `:4:29: descriptor "d.k.l" is defined twice`},
		"rate_limit is text":    {top + "  - {key: k, rate_limit: 5}\n", `:3:26: rate_limit is "5", must be a mapping (NAME: VALUE)`},
		"no unit":               {top + "  - {key: k, rate_limit: {requests_per_unit: 5}}\n", `:3:26: unit is "", must be second, minute, hour, day, week, month or year`},
		"unknown unit":          {top + "  - {key: k, rate_limit: {unit: fortnight}}\n", `:3:33: unit is "fortnight", must be second,`},
		"unit unknown":          {top + "  - {key: k, rate_limit: {unit: unknown}}\n", `:3:33: unit is "unknown", must be second,`},
		"negative":              {one + "      requests_per_unit: -1\n", `:6:26: requests_per_unit is "-1", must be a whole number between 0 and 4294967295`},
		"too large":             {one + "      requests_per_unit: 4294967296\n", `:6:26: requests_per_unit is "4294967296", must be`},
		"quota is text":         {one + "      requests_per_unit: 'five'\n", `:6:26: requests_per_unit is "five", must be`},
		"quota is a float":      {one + "      requests_per_unit: 1.5\n", `:6:26: requests_per_unit is "1.5", `},
		"flag is text":          {top + "  - {key: k, shadow_mode: maybe}\n", `:3:27: shadow_mode is "maybe", must be true or false`},
		"flag in quotes":        {top + "  - {key: k, quota_mode: 'true'}\n", `:3:26: quota_mode is "true", must be true or false`},
		"flag tagged as text":   {top + "  - {key: k, quota_mode: !!str true}\n", `:3:26: quota_mode is "true", must be true or false`},
		"unlimited with unit":   {one + "      unlimited: true\n", `:5:13: an unlimited rate_limit has unit "day", must have none`},
		"unlimited, algorithm":  {top + "  - {key: k, rate_limit: {unlimited: true, algorithm: gcra}}\n", `:3:55: an unlimited rate_limit must not set how to count`},
		"replaces itself":       {one + "      name: n\n      replaces: [{name: n}]\n", `:7:18: the limit "n" replaces itself`},
		"replaces nothing":      {one + "      replaces: [{name: }]\n", `:6:18: an entry of replaces has no name`},
		"replaces text":         {one + "      replaces: [n]\n", `:6:18: replaces is "n", must be a mapping`},
		"share without pattern": {top + "  - {key: k, value: v, share_threshold: true}\n", `:3:5: share_threshold is set on "k_v", must be on a descriptor with a * in its value`},
		"metadata is text":      {top + "  - {key: k, metadata: x}\n", `:3:24: metadata is "x", must be a mapping`},
		"metadata of no number": {top + "  - {key: k, metadata: {a: !!int b}}\n", `:3:28: "b" in metadata cannot be read`},
		"metadata of a list":    {top + "  - {key: k, metadata: {? [a] : b}}\n", `:3:27: a field's name in metadata is a list, must be text`},
		"unknown algorithm":     {one + "      algorithm: leaky-bucket\n", `:6:18: tierlimit: invalid algorithm: "leaky-bucket"`},
		"algorithm and need":    {one + "      algorithm: gcra\n      need: {above: 0}\n", `:5:7: rate_limit has both an algorithm and a need, choose one of them`},
		"need of text":          {one + "      need: {above: much}\n", `:6:21: above is "much", must be a fraction like 0 or 0.1`},
		"negative need":         {one + "      need: {late: -1}\n", `:6:13: tierlimit: invalid need: Late is at most -1`},
		"unknown need":          {one + "      need: {memory: 5}\n", `:6:14: unknown field "memory", must be one of above, late, bytes`},
		"outage":                {one + "      outage: ignore\n", `:6:15: outage is "ignore", must be approximate, allow or deny`},
		"lease":                 {one + "      algorithm: gcra\n      lease: 60\n", `:7:14: lease is "60", must be a percentage of the limit, 1 to 50`},
		"lease of 0":            {one + "      algorithm: gcra\n      lease: 0\n", `:7:14: lease is "0", must be a percentage of the limit, 1 to 50`},
		"debt":                  {one + "      algorithm: gcra\n      debt: 5\n", `:7:13: debt is "5", must be true or false`},
		"debt, not counted":     {one + "      debt: true\n", `:5:7: debt needs an algorithm or a need beside it`},
		"lease, not counted":    {one + "      lease: 10\n", `:5:7: lease needs an algorithm or a need beside it`},
		"burst without gcra":    {one + "      algorithm: sliding-log\n      burst: 5\n", `:5:7: burst is set, but only the algorithm gcra has a burst`},
		"burst of 0":            {one + "      algorithm: gcra\n      burst: 0\n", `:7:14: burst is "0", must be at least 1`},
		"window":                {top + "  - {key: k, rate_limit: {window: soon}}\n", `:3:35: window is "soon", must be a duration like 90s, 15m or 36h`},
		"window too long":       {top + "  - {key: k, rate_limit: {window: 9000h}}\n", `:3:35: tierlimit: invalid limit: window is 9000h`},
		"window and multiplier": {top + "  - {key: k, rate_limit: {window: 5s, unit_multiplier: 2}}\n", `:3:35: rate_limit has both a window and a unit`},
		"window and unit":       {one + "      window: 5s\n", `:6:15: rate_limit has both a window and a unit, choose one of them`},
		"years":                 {one + "      unit_multiplier: 4000000000\n", `:5:7: tierlimit: invalid limit: window is 8808h`},
		"no multiplier":         {one + "      unit_multiplier: 0\n", `:6:24: unit_multiplier is "0", must be at least 1`},
		"alias of itself":       {top + "  - &a {key: k, descriptors: [*a]}\n", `lists, fields and aliases are nested too deep, or are too many`},
		"bomb":                  {bomb(), `lists, fields and aliases are nested too deep, or are too many`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Load(t.Context(), []File{{"f.yaml", []byte(c.text)}}, false, nil)
			var p *Problem
			if err == nil || !strings.Contains(err.Error(), "f.yaml"+c.want) && !(strings.HasPrefix(c.want, "lists") && strings.Contains(err.Error(), c.want)) {
				t.Fatalf("%v\nwant %s", err, c.want)
			}
			if !errors.Is(err, ErrInvalid) || !errors.As(err, &p) || p.Line < 1 {
				t.Errorf("%#v", err)
			}
		})
	}
}

// bomb returns a few lines of aliases that expand to a billion values.
func bomb() string {
	var b strings.Builder
	b.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := range 9 {
		name, of := string(rune('1'+i)), string(rune('0'+i))
		b.WriteString("a" + name + ": &a" + name + " [" + strings.Repeat("*a"+of+", ", 9) + "*a" + of + "]\n")
	}
	return b.String()
}

// A few lines that merge a mapping many times are read without much memory, or refused.
func TestMergedManyTimes(t *testing.T) {
	for _, field := range []string{"x", "metadata"} {
		var b strings.Builder
		b.WriteString("domain: d\ndescriptors:\n- &a0 {key: k0, " + field + ": {a: 1, b: 2, c: 3}}\n")
		for i := range 6 {
			name, of := string(rune('1'+i)), string(rune('0'+i))
			b.WriteString("- &a" + name + " {<<: [" + strings.Repeat("*a"+of+", ", 9) + "*a" + of + "], key: k" + name + "}\n")
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Load(t.Context(), []File{{"f.yaml", []byte(b.String())}}, false, nil)
		runtime.ReadMemStats(&after)
		if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 2000 {
			t.Errorf("%s: %d MB (%v)", field, took, err)
		}
	}
}

// Causes can be told apart, and an error lists several mistakes, up to a bound.
func TestSeveralMistakes(t *testing.T) {
	_, err := Load(t.Context(), []File{
		{"a.yaml", []byte("domain: a\ndescriptors: [{key: k, rate_limit: {unit: day, algorithm: x}}, {value: v}]")},
		{"b.yaml", []byte("domain: b\ndescriptors: [" + strings.Repeat("{value: v}, ", 1000) + "]")},
	}, false, nil)
	if !errors.Is(err, limit.ErrInvalidAlgorithm) || !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
	if lines := strings.Count(err.Error(), "\n") + 1; lines != maxProblems+1 || !strings.Contains(err.Error(), "982 more mistakes are not shown") {
		t.Errorf("%d lines: %v", lines, err)
	}
	if _, err := Load(t.Context(), []File{{"large.yaml", make([]byte, maxBytes+1)}}, false, nil); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
}

// Any file is either read or refused with ErrInvalid.
func FuzzLoad(f *testing.F) {
	f.Add([]byte(nested))
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := Load(t.Context(), []File{{"f", text}}, false, nil)
		if (c == nil) == (err == nil) {
			t.Errorf("%v, %v", c, err)
		}
		if err != nil && !errors.Is(err, ErrInvalid) {
			t.Error(err)
		}
	})
}
