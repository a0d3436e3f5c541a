package remote

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

func newKeyspace(t rapid.TB, prefix string) Keyspace {
	t.Helper()
	k, err := NewKeyspace(prefix)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// hashTag returns the part of a key that Redis Cluster hashes: the text between the first "{" and the first "}"
// after it, unless that is empty.
func hashTag(key string) (tag string, ok bool) {
	_, rest, opened := strings.Cut(key, "{")
	tag, _, closed := strings.Cut(rest, "}")
	return tag, opened && closed && tag != ""
}

// The format of keys never changes, because instances of different versions share keys.
func TestKey(t *testing.T) {
	k := newKeyspace(t, "rl")
	longest := strings.Repeat("x", maxPlainKey)
	for userKey, want := range map[string]string{
		"alice":          "rl:{alice}:search",
		"10.0.0.1":       "rl:{10.0.0.1}:search",
		"a:b":            "rl:{a:b}:search",
		"{x}":            "rl:{%7Bx%7D}:search",
		"100%":           "rl:{100%25}:search",
		"%7B":            "rl:{%257B}:search",
		"\x00\xff\r\n":   "rl:{\x00\xff\r\n}:search",
		"日本":             "rl:{日本}:search",
		longest:          "rl:{" + longest + "}:search",
		longest + "x":    "rl:{%#lTfF_fEgSC99WNJentWD9SwCtOME6oFNsWM61WWu1-k}:search",
		"{" + longest:    "rl:{%#Y-W2iS-MM6_EIKzmoPWLck06k8ftyIFCvXwNNpawOS4}:search",
		longest + "\x00": "rl:{%#1_SA1F4UwFg5vX-enRxWeRGtjnCy5uyyYcP4K8gvFac}:search",
	} {
		if got := k.Key("search", NewUserKey(userKey)); got != want {
			t.Errorf("%q: %q, want %q", userKey, got, want)
		}
	}
}

// drawUserKey draws arbitrary bytes, and often bytes that might confuse the escaping.
var drawUserKey = rapid.OneOf(
	rapid.StringOf(rapid.SampledFrom([]rune("{}%:#25BD7ab"))),
	rapid.Custom(func(t *rapid.T) string { return string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")) }),
	rapid.StringOfN(rapid.SampledFrom([]rune("a{}%")), 15, 90, -1),
	rapid.SampledFrom([]string{"%fleet", "fleet", "%#", "}:search", "alice}:search", "{alice}", "\x00", "", "a\x00"}),
	rapid.Map(rapid.IntRange(60, 10_000), func(n int) string { return strings.Repeat("k", n) }),
)

var drawRuleName = rapid.OneOf(
	rapid.SampledFrom([]string{"a", "b", "search", "search/v2", "a.b", "a-b", "a_b"}),
	rapid.StringMatching(`[a-zA-Z0-9_./-]{1,64}`),
)

// Redis keys of different user keys or rules never collide, whatever bytes the user keys have, even if somebody who
// knows the format chooses them.
func TestKeysNeverCollide(t *testing.T) {
	t.Run("a hash tag each", func(t *testing.T) { checkCollisions(t, newKeyspace(t, "rl")) })
	t.Run("hash tags shared", func(t *testing.T) { checkCollisions(t, newKeyspace(t, "rl").WithHashTags(2)) })
}

func checkCollisions(t *testing.T, k Keyspace) {
	type pair struct{ rule, userKey string }
	rapid.Check(t, func(t *rapid.T) {
		userKeys := rapid.SliceOfN(drawUserKey, 1, 10).Draw(t, "user keys")
		rules := rapid.SliceOfN(drawRuleName, 1, 4).Draw(t, "rules")
		for _, u := range slices.Clone(userKeys) {
			// These are keys that a user could try in order to be taken for u.
			userKeys = append(userKeys, string(NewUserKey(u)), string(NewUserKey(string(NewUserKey(u)))), k.Key(rules[0], NewUserKey(u)), u+"}:"+rules[0], "{"+u+"}", u+"\x00")
		}
		owner := map[string]pair{k.fleetKey(): {"the fleet", ""}}
		for _, u := range userKeys {
			for _, r := range rules {
				key, p := k.Key(r, NewUserKey(u)), pair{r, u}
				if other, taken := owner[key]; taken && other != p {
					t.Fatalf("%q and %q share the key %q", p, other, key)
				}
				owner[key] = p
				// Keys of leases and markers of charges differ from all other keys and from each other.
				lease := pair{"lease of " + r, u}
				if other, taken := owner[key+":lease"]; taken && other != lease {
					t.Fatalf("%q is the key of %q and of %q", key+":lease", lease, other)
				}
				owner[key+":lease"] = lease
				for _, instance := range []string{"i", "j:charged:i", "}:" + r} {
					m := pair{"marker of " + r + " by " + instance, u}
					if other, taken := owner[markerKey(key, instance)]; taken && other != m {
						t.Fatalf("%q is the key of %q and of %q", markerKey(key, instance), m, other)
					}
					owner[markerKey(key, instance)] = m
				}
			}
		}
	})
}

// Law 7: Redis keys are short, whatever bytes a user key has and however many. Their hash tag is derived from the
// whole user key, so braces in the user key cannot choose the slot. The keys of all rules for one user key share
// the tag.
func TestKeysAreBoundedAndTagged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		prefix := rapid.StringMatching(`[a-zA-Z0-9_.:-]{1,32}`).Draw(t, "prefix")
		k := newKeyspace(t, prefix)
		rule := drawRuleName.Draw(t, "rule")
		userKey := drawUserKey.Filter(func(u string) bool { return u != "" }).Draw(t, "user key")
		key := k.Key(rule, NewUserKey(userKey))
		if most := len(prefix) + len(rule) + maxPlainKey + len(":{}:"); len(key) > most {
			t.Fatalf("%d bytes of user key make a key of %d, want at most %d", len(userKey), len(key), most)
		}
		tag, ok := hashTag(key)
		if !ok || tag != string(NewUserKey(userKey)) || key != prefix+":{"+tag+"}:"+rule {
			t.Fatalf("the hash tag of %q is %q", key, tag)
		}
		if other := k.Key("other", NewUserKey(userKey)); keySlot(key) != keySlot(other) {
			t.Fatalf("%q and %q are in different slots", key, other)
		}
	})
}

// With shared hash tags, the slots are divided into equal parts with a tag in the middle of each. A user key has
// the tag of the part that contains its own slot. The keys of all rules for one user key share the tag.
func TestHashTagsLieAtEqualDistances(t *testing.T) {
	for _, n := range []int{1, 2, 48, 1000, SlotCount} {
		k := newKeyspace(t, "rl").WithHashTags(n)
		for i, tag := range k.tags {
			if slot, want := int(hashSlot(tag)), (2*i+1)*SlotCount/(2*n); slot != want {
				t.Fatalf("tag %d of %d, %q, is in slot %d, want %d", i, n, tag, slot, want)
			}
		}
		rapid.Check(t, func(t *rapid.T) {
			userKey := drawUserKey.Draw(t, "user key")
			key, slot := k.Key(drawRuleName.Draw(t, "rule"), NewUserKey(userKey)), int(k.Slot(NewUserKey(userKey)))
			own := int(hashSlot(string(NewUserKey(userKey))))
			if int(keySlot(key)) != slot || slot*n/SlotCount != own*n/SlotCount {
				t.Fatalf("of %d tags: %q is in slot %d, said to be in %d, its own is %d", n, key, keySlot(key), slot, own)
			}
			if escaped := string(NewUserKey(userKey)); !strings.HasPrefix(key, "rl:{%") || !strings.Contains(key, "}{"+escaped+"}:") {
				t.Fatalf("%q", key)
			}
		})
	}
}

// checkEscape checks that the user key can be read back from its escaped form, or is hashed because the escaped
// form would be too long.
func checkEscape(t *testing.T, userKey string) {
	escaped := string(NewUserKey(userKey))
	if len(escaped) > maxPlainKey || strings.ContainsAny(escaped, "{}") {
		t.Fatalf("%q became %q", userKey, escaped)
	}
	if strings.HasPrefix(escaped, "%#") {
		if len(keyEscaper.Replace(userKey)) <= maxPlainKey {
			t.Fatalf("%q is short, and was hashed", userKey)
		}
		return
	}
	if back, err := url.PathUnescape(escaped); err != nil || back != userKey {
		t.Fatalf("%q became %q, which reads as %q, %v", userKey, escaped, back, err)
	}
}

func FuzzKey(f *testing.F) {
	for _, seed := range []string{"", "alice", "{", "}", "%", "%#", "%fleet", "%7B", "a}b{c", "\x00\xff", strings.Repeat("{", 21), strings.Repeat("{", 22), strings.Repeat("x", 65)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, userKey string) {
		checkEscape(t, userKey)
		k := newKeyspace(t, "rl")
		if key := k.Key("search", NewUserKey(userKey)); key == k.fleetKey() || !strings.HasPrefix(key, "rl:{") || !strings.HasSuffix(key, "}:search") {
			t.Fatalf("%q has the key %q", userKey, key)
		}
	})
}

func TestNewKeyspace(t *testing.T) {
	for _, prefix := range []string{"a", "rl", "team-7:rate_limit.v2", strings.Repeat("x", 32)} {
		if _, err := NewKeyspace(prefix); err != nil {
			t.Errorf("%q: %v", prefix, err)
		}
	}
	for _, prefix := range []string{"", " ", "a b", "a{b", "a}", "a*", "a%", "é", "\xff", "a\x00", strings.Repeat("x", 33)} {
		_, err := NewKeyspace(prefix)
		if !errors.Is(err, limit.ErrInvalidOption) || !strings.Contains(err.Error(), strconv.Quote(prefix)) {
			t.Errorf("%q: %v; want ErrInvalidOption quoting it", prefix, err)
		}
	}
}

func TestCheckRuleName(t *testing.T) {
	for _, name := range []string{"a", "search", "GET-/v2/items", "a_b.c", strings.Repeat("x", 64)} {
		if err := CheckRuleName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"", " ", "a b", "a:b", "{a}", "a%", "é", "\xff", "a\n", strings.Repeat("x", 65)} {
		err := CheckRuleName(name)
		if !errors.Is(err, limit.ErrInvalidRule) || !strings.Contains(err.Error(), strconv.Quote(name)) {
			t.Errorf("%q: %v; want ErrInvalidRule quoting it", name, err)
		}
	}
}

// A pattern finds the keys of its own keyspace, and no key of a keyspace whose prefix begins or ends alike.
func TestPattern(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	ctx := context.Background()
	base := redistest.Prefix() + "p"
	k := newKeyspace(t, base)
	want := []string{k.fleetKey(), k.Key("search", "alice"), k.Key("search", NewUserKey("{}%")), k.Key("search", NewUserKey(strings.Repeat("x", 100)))}
	keys := slices.Clone(want)
	for _, other := range []string{base + "p", base + ":p", "p" + base, base + "."} {
		keys = append(keys, newKeyspace(t, other).Key("search", "alice"))
	}
	for _, key := range keys {
		if err := client.Set(ctx, key, 1, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	pattern := base + ":{*"
	got, err := client.Keys(ctx, pattern).Result()
	slices.Sort(got)
	slices.Sort(want)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%s finds %q, %v; want %q", pattern, got, err, want)
	}
}
