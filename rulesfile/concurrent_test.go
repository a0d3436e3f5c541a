package rulesfile

import (
	"strings"
	"testing"

	"github.com/tierlimit/tierlimit/limit"
)

func TestConcurrentLimits(t *testing.T) {
	f, err := read("rules.yaml", []byte("rules:\n  jobs:\n    concurrent: 10\n    slot_ttl: 3s\n    plans:\n      large: 50/concurrent\n"))
	if err != nil {
		t.Fatal(err)
	}
	r := f.rules[0]
	if r.limit.value != limit.Concurrent(10) || r.plans["large"].value != limit.Concurrent(50) || len(r.options) != 1 {
		t.Errorf("%+v", r)
	}
	for text, want := range map[string]string{
		"concurrent: many":                  `rules.yaml:3:17`,
		"concurrent: 0":                     `invalid limit`,
		"concurrent: 1\n    plans: {a: 5}":  `rules.yaml:4:16: tierlimit: invalid limit: "5": write the limit of this rule's plans and keys like 10/concurrent`,
		"concurrent: 1\n    slot_ttl: soon": `slot_ttl is "soon"`,
		"concurrent: 1\n    limit: 10/1m":   `both limit and concurrent`,
		"limit: 1/concurrent,burst=2":       `invalid limit`,
	} {
		_, err := read("rules.yaml", []byte("rules:\n  jobs:\n    "+text+"\n"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
