package livepage

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// For any bytes, the shown text is short and visible, and tells which key it is.
func TestKeysAreShownAsTheyAre(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := string(rapid.SliceOfN(rapid.Byte(), 1, 2*longest).Draw(t, "bytes"))
		if rapid.Bool().Draw(t, "text") {
			key = rapid.StringN(1, 2*longest, -1).Draw(t, "string")
		}
		k := inClear(key)
		if len(k.Text) > 10*longest || !utf8.ValidString(k.Text) {
			t.Fatalf("%q is shown as %q", key, k.Text)
		}
		for _, r := range k.Text {
			if !unicode.IsPrint(r) {
				t.Fatalf("%q is shown with %U", key, r)
			}
		}
		read, err := parseKey(k.Text)
		switch {
		case err != nil:
			t.Fatal(err)
		case k.Whole() && read != key:
			t.Fatalf("%q is shown as %q, which reads %q", key, k.Text, read)
		case !k.Whole() && (k.Cut != len(key) || !strings.HasPrefix(key, read)):
			t.Fatalf("%q is cut to %+v", key, k)
		}
	})
}

// Characters that show nothing are escaped, so that no key looks like another key, or like an empty
// one.
func TestBlankKeys(t *testing.T) {
	for key, want := range map[string]string{
		"alice\u3164": `"alice\u3164"`, "\u034f": `"\u034f"`, "\uffa0\u115f": `"\uffa0\u115f"`, "\u2800": `"\u2800"`,
		"a\ufe0f\xff": `"a\ufe0f\xff"`, "\U000e0100é": `"\U000e0100\u00e9"`, "a\u200b\u202e": `"a\u200b\u202e"`,
		"é": "é", "שלום": "שלום",
	} {
		k := inClear(key)
		if k.Text != want {
			t.Errorf("%+q is shown as %+q", key, k.Text)
		}
		if read, err := parseKey(k.Text); read != key || err != nil {
			t.Errorf("%+q reads as %+q, %v", k.Text, read, err)
		}
	}
}

func TestBadQuotes(t *testing.T) {
	if _, err := parseKey(`"open`); err == nil {
		t.Error("no error")
	}
}

func TestHashedKeys(t *testing.T) {
	a, b := hashedWith([]byte("0123456789abcdef")), hashedWith([]byte("0123456789abcdeg"))
	if again := hashedWith([]byte("0123456789abcdef")); a("alice") != again("alice") || a("alice") == a("bob") || a("alice") == b("alice") {
		t.Error("a hash follows from secret and key, and nothing else")
	}
	if k := a("alice"); strings.Contains(k.Text, "alice") || k.Whole() || len(k.Text) != 17 {
		t.Errorf("%+v", k)
	}
}
