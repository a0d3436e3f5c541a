package accesslog

import (
	"strings"
	"testing"
)

func TestKeyOf(t *testing.T) {
	tests := []struct {
		kind       string
		host, path string
		want       string
	}{
		{"host", "h", "/a", "h"},
		{"path", "h", "/a", "/a"},
		{"path", "h", "/a?b=c?d", "/a"},
		{"path", "h", "/a b", "/a b"},
		{"path", "h", "", "-"},
		{"path", "h", "?a", "-"},
		{"host+path", "h", "/a?b", "h /a"},
		{"host+path", "h", "", "h -"},
		{"host+path", "2001:db8::1", "/a b", "2001:db8::1 /a b"},
		{"host+path", "user 17", "/a", `"user 17" /a`},
		{"host+path", `"user`, "/a", `"\"user" /a`},
	}
	for _, test := range tests {
		kind, err := ParseKeyKind(test.kind)
		if err != nil {
			t.Fatal(err)
		}
		if got := kind.Of(Request{Host: test.host, Path: test.path}); got != test.want {
			t.Errorf("%s of %q, %q: got %q, want %q", test.kind, test.host, test.path, got, test.want)
		}
	}
}

func TestParseKeyKindNamesTheKinds(t *testing.T) {
	for _, s := range []string{"", "Host", "agent"} {
		_, err := ParseKeyKind(s)
		if err == nil || !strings.Contains(err.Error(), "host, path, host+path, user") {
			t.Errorf("%q: %v", s, err)
		}
	}
}
