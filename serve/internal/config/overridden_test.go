package config

import (
	"fmt"
	"testing"
)

// A field that a later one of its name overrides is read as strictly as in envoyproxy/ratelimit, which refuses values of
// a wrong kind there, and accepts everything else.
func TestOverriddenFields(t *testing.T) {
	const last = "key: k, rate_limit: {unit: day, requests_per_unit: 3}"
	for descriptor, want := range map[string]string{
		"{key: [], " + last + "}":                                                  `f.yaml:2:21: key is a list, must be text`,
		"{shadow_mode: 1, " + last + ", shadow_mode: true}":                        `f.yaml:2:29: shadow_mode is "1", must be true or false`,
		"{rate_limit: 5, " + last + "}":                                            `f.yaml:2:28: rate_limit is "5", must be a mapping (NAME: VALUE)`,
		"{metadata: [], metadata: {}, " + last + "}":                               `f.yaml:2:26: metadata is a list, must be a mapping (NAME: VALUE)`,
		"{descriptors: [{rate_limit: {unit: {}}}], descriptors: [], " + last + "}": `f.yaml:2:50: unit is a mapping, must be text`,
		"{descriptors: [5], descriptors: [], " + last + "}":                        `f.yaml:2:30: an entry of descriptors is "5", must be a mapping (NAME: VALUE)`,
		`{rate_limit: {requests_per_unit: "4"}, ` + last + "}":                     `f.yaml:2:48: requests_per_unit is "4", must be a whole number between 0 and 4294967295`,
		"{rate_limit: {replaces: [{name: {}}], replaces: []}, " + last + "}":       `f.yaml:2:47: name is a mapping, must be text`,

		"{rate_limit: {unknown: 1, unit: 7, requests_per_unit: 1.0, key: []}, " + last + "}": "",
		"{key: ~, rate_limit: ~, " + last + "}":                                              "",
		"{descriptors: [{}, {unknown: 1}, ~], descriptors: [], " + last + "}":                "",
		"{metadata: {key: []}, metadata: {key: x}, " + last + "}":                            "",
		"{quota_mode: ~, " + last + ", quota_mode: true}":                                    "",
	} {
		c, err := Load(t.Context(), []File{{"f.yaml", []byte("domain: d\ndescriptors: [" + descriptor + "]")}}, false, nil)
		if got := fmt.Sprint(err); got != want && (err != nil || want != "") {
			t.Errorf("%s: %v, want %s", descriptor, err, want)
		}
		if want == "" && err == nil && c.Match("d", entries("k=")).Limit.RequestsPerUnit() != 3 {
			t.Errorf("%s: another limit", descriptor)
		}
	}
}
