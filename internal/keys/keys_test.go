package keys

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tierlimit/tierlimit/limit"
)

// parts draws strings that look like the output of Join.
var parts = rapid.SliceOfN(rapid.OneOf(
	rapid.StringMatching(`[0-9:]{0,6}`),
	rapid.StringMatching(`([0-9]:[a-c]?){0,3}`),
	rapid.String(),
), 1, 4)

// Different lists of parts, of any bytes and lengths, never make the same key.
func TestJoinedPartsNeverCollide(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := parts.Draw(t, "a"), parts.Draw(t, "b")
		joined := Join(a...)
		if empty := strings.Join(a, "") == ""; empty != (joined == "") {
			t.Fatalf("%q has the key %q", a, joined)
		} else if empty {
			return // no key
		}
		if joined == Join(b...) && !slices.Equal(a, b) {
			t.Fatalf("%q and %q share the key %q", a, b, joined)
		}
		for i := range a {
			if a[i] == "" {
				continue
			}
			last := len(a[i]) - 1
			changed := slices.Clone(a)
			changed[i] = a[i][:last] + string([]byte{a[i][last] + 1})
			if Join(changed...) == joined {
				t.Fatalf("%q and %q share the key %q", a, changed, joined)
			}
			if i == len(a)-1 {
				break
			}
			// A separator between the parts would not notice a byte that moves over a boundary.
			moved := slices.Clone(a)
			moved[i], moved[i+1] = a[i][:last], a[i][last:]+a[i+1]
			if Join(moved...) == joined {
				t.Fatalf("%q and %q share the key %q", a, moved, joined)
			}
		}
	})
}

// These lists would collide if lengths or numbers were not kept apart from what follows them.
func TestNumbersEnd(t *testing.T) {
	zeros := strings.Repeat("0", 11)
	if a, b := Join(zeros), Join(append([]string{"1"}, make([]string, 11)...)...); a == b {
		t.Errorf("two lists share the key %q", a)
	}
	if a, b := Alternative(1, "1:x"), Alternative(11, ":x"); a == b {
		t.Errorf("two alternatives share the key %q", a)
	}
}

// No request can claim the key that is shared by requests without a key.
func TestNoKeyIsAKeyOfItsOwn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.OneOf(rapid.StringMatching("\x00{0,3}(a|long)?"), rapid.String()).Draw(t, "a")
		other := rapid.OneOf(rapid.StringMatching("\x00{0,3}(a|long)?"), rapid.String()).Draw(t, "b")
		if key != other && OrNone(key) == OrNone(other) {
			t.Fatalf("%q and %q share the key %q", key, other, OrNone(key))
		}
		if OrNone(key) == "" {
			t.Fatalf("%q gives an empty key", key)
		}
		tooLong := OrNone(key + strings.Repeat("x", limit.MaxKey))
		if OrNone(key) == tooLong || tooLong != OrNone("\x00"+strings.Repeat("y", limit.MaxKey-1)) {
			t.Fatalf("%q gives the key %q, that of keys that are too long is %q", key, OrNone(key), tooLong)
		}
		if longest := key + strings.Repeat("x", limit.MaxKey-1-len(key)); OrNone(longest) == tooLong {
			t.Fatalf("a key of %d bytes is too long", len(longest))
		}
	})
}

func TestAlternativesNeverCollide(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		i, j := rapid.IntRange(0, 12).Draw(t, "i"), rapid.IntRange(0, 12).Draw(t, "j")
		a, b := rapid.StringMatching(`[0-9:]{0,4}`).Draw(t, "a"), rapid.StringMatching(`[0-9:]{0,4}`).Draw(t, "b")
		if (i != j || a != b) && Alternative(i, a) == Alternative(j, b) {
			t.Fatalf("%d %q and %d %q share the key %q", i, a, j, b, Alternative(i, a))
		}
	})
}

func TestAddress(t *testing.T) {
	for _, c := range []struct{ addr, key string }{
		{"192.0.2.7", "192.0.2.7"},
		{"::ffff:192.0.2.7", "192.0.2.7"},  // IPv4 on a dual-stack socket
		{"64:ff9b::c000:207", "192.0.2.7"}, // IPv4, as a translator shows it to an IPv6 server
		{"2001:db8:1:2::1", "2001:db8:1:2::/64"},
		{"2001:db8:1:2:ffff:ffff:ffff:ffff", "2001:db8:1:2::/64"},
		{"2001:db8:1:3::1", "2001:db8:1:3::/64"},
		{"fe80::1%eth0", "fe80::/64"},
		{"fe80::1%whatever-a-client-likes", "fe80::/64"},
		{"::1", "::/64"},
	} {
		if got := Address(netip.MustParseAddr(c.addr)); got != c.key {
			t.Errorf("Address(%s) = %q, want %q", c.addr, got, c.key)
		}
	}
	if got := Address(netip.Addr{}); got != "" {
		t.Errorf("Address of no address = %q", got)
	}
}

// Processes of two releases share limits during a deployment, so a request has the same key in all releases.
func TestKeysDoNotChangeBetweenReleases(t *testing.T) {
	for _, c := range []struct{ key, want string }{
		{Join("user", "", "GET /items/{id}"), "4:user0:15:GET /items/{id}"},
		{Alternative(1, "192.0.2.7"), "1:192.0.2.7"},
		{OrNone(""), "\x00"},
		{OrNone("\x00a"), "\x00\x00a"},
		{OrNone(strings.Repeat("x", limit.MaxKey)), "\x00long"},
	} {
		if c.key != c.want {
			t.Errorf("the key is %q, must be %q", c.key, c.want)
		}
	}
}
