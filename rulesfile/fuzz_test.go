package rulesfile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// Any file either reads as rules with valid limits, or each problem has a place in the file.
func FuzzRead(f *testing.F) {
	paths, err := filepath.Glob("testdata/broken/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range append(paths, "../docs/rules.yaml") {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte("rules: {api: {limit: 10/1m}}\r"))
	f.Add([]byte("rules: {api: {limit: 10/1m}}\n---\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := read("f", text)
		if err == nil {
			seen := make(map[string]bool)
			for _, s := range file.rules {
				if seen[s.name] {
					t.Errorf("rule %q comes twice", s.name)
				}
				seen[s.name] = true
				if err := s.limit.value.Validate(); err != nil {
					t.Error(err)
				}
			}
			if len(seen) == 0 {
				t.Error("no rules, and no problem")
			}
			return
		}
		joined, ok := err.(interface{ Unwrap() []error })
		if !ok {
			t.Fatalf("%T", err)
		}
		lines := strings.Count(strings.ReplaceAll(string(text), "\r", "\n"), "\n") + 1
		for _, err := range joined.Unwrap() {
			p := &Problem{}
			if !errors.As(err, &p) || p.Line < 1 || p.Line > lines || p.Column < 1 || p.Column > len(text)+2 { // a missing value follows a space
				t.Errorf("%v in a file of %d lines", err, lines)
			}
			if !utf8.ValidString(err.Error()) {
				t.Errorf("%q is no text", err)
			}
		}
	})
}
