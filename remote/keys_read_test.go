package remote

import (
	"testing"

	"pgregory.net/rapid"
)

// Others may use keys that look like those of a rule. One with a brace too many is not taken for the rule's.
func TestForeignKeysAreNotRead(t *testing.T) {
	keyspace := newKeyspace(t, "x")
	for _, redisKey := range []string{"x:{a}b}:r", "x:{a{b}:r", "x:{a}{b}:r", "x:{%1}{a}b}:r"} {
		if user, ok := keyspace.UserKeyOf(redisKey, "r"); ok {
			t.Errorf("%q is taken for a key of the rule, with user key %q", redisKey, user)
		}
	}
}

// User keys can be read from Redis keys, unless they are stored as hashes.
func TestUserKeysAreReadFromRedisKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keyspace, err := NewKeyspace(rapid.SampledFrom([]string{"tierlimit", "a:b", "x"}).Draw(t, "prefix"))
		if err != nil {
			t.Fatal(err)
		}
		if n := rapid.IntRange(0, 3).Draw(t, "tags"); n > 0 {
			keyspace = keyspace.WithHashTags(n)
		}
		said := rapid.OneOf(rapid.StringOf(rapid.SampledFrom([]rune("a{}%25:7BD#"))), rapid.String()).Draw(t, "key")
		rule := rapid.SampledFrom([]string{"r", "r/2", "25", "slots"}).Draw(t, "rule")
		redisKey := keyspace.Key(rule, NewUserKey(said))
		user, ok := keyspace.UserKeyOf(redisKey, rule)
		if !ok || user != NewUserKey(said) {
			t.Fatalf("%q of %q: %q, %v", redisKey, said, user, ok)
		}
		if got, whole := user.Original(); whole && got != said || !whole && len(said) <= maxPlainKey/3 {
			t.Errorf("%q is read as %q, %v", said, got, whole)
		}
		if user, ok := keyspace.UserKeyOf(keyspace.Related(redisKey).Slots, rule); !ok || user != NewUserKey(said) {
			t.Fatalf("slots of %q of %q: %q, %v", redisKey, said, user, ok)
		}
		for _, other := range []string{leaseKey(redisKey), holdsKey(redisKey), markerKey(redisKey, "i"), keyspace.fleetKey(), "x" + redisKey, keyspace.Key("other", user)} {
			if user, ok := keyspace.UserKeyOf(other, rule); ok {
				t.Errorf("%q is taken for a key of %q, with user key %q", other, rule, user)
			}
		}
	})
}
