package livepage

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// longest is the number of bytes of a key that are kept and shown at most.
const longest = 128

// shownKey is the form in which a key is kept and shown. A key is bytes that anyone may choose.
type shownKey struct {
	// Text is the key in the form that [parseKey] reads. It is the key itself if the key is short and
	// consists of visible characters. Otherwise it is quoted as in Go, so that neither control
	// characters nor marks that change the direction of writing reach the page.
	Text string
	// Cut is the length of the key if Text is only its beginning; otherwise it is 0.
	Cut int
	// Hashed reports that Text is a hash of the key.
	Hashed bool
}

// Whole reports whether Text determines the whole key.
func (k shownKey) Whole() bool { return k.Cut == 0 && !k.Hashed }

// inClear shows the key itself.
func inClear(key string) shownKey {
	var k shownKey
	if len(key) > longest {
		k.Cut = len(key)
		key = key[:longest]
	}
	switch {
	case plain(key):
		k.Text = strings.Clone(key)
	case strings.ContainsFunc(key, blank):
		k.Text = strconv.QuoteToASCII(key)
	default:
		k.Text = strconv.Quote(key)
	}
	return k
}

// plain reports whether a key can be shown as it is, without quotes.
func plain(key string) bool {
	if !utf8.ValidString(key) || strings.HasPrefix(key, `"`) || strings.TrimSpace(key) != key {
		return false
	}
	for _, r := range key {
		if !unicode.IsPrint(r) || blank(r) {
			return false
		}
	}
	return true
}

// blank reports whether a character shows nothing although Unicode counts it among letters, marks or
// symbols, so that strconv.Quote does not escape it: fillers, joiners, variation selectors, and the
// empty pattern of Braille.
func blank(r rune) bool {
	return r == '\u2800' || unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// hashedWith returns a function that shows a key as the beginning of its HMAC.
func hashedWith(secret []byte) func(string) shownKey {
	return func(key string) shownKey {
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(key))
		return shownKey{Text: "#" + hex.EncodeToString(mac.Sum(nil)[:8]), Hashed: true}
	}
}

// parseKey reads a key as people write it: as it is or, if it contains characters that cannot be typed,
// quoted as in Go.
func parseKey(text string) (string, error) {
	if !strings.HasPrefix(text, `"`) {
		return text, nil
	}
	key, err := strconv.Unquote(text)
	if err != nil {
		return "", fmt.Errorf(`the key begins with a quotation mark, but is not a quoted Go string like "caf\xc3\xa9"`)
	}
	return key, nil
}
