package remote

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"

	"github.com/tierlimit/tierlimit/limit"
)

// maxPlainKey is the longest user key, in bytes after escaping, that is written into the Redis key as it is. A
// longer user key is replaced by its hash, so that untrusted keys cannot fill Redis (law 7).
const maxPlainKey = 64

// hashedKey is the prefix of keys that are hashes. The escaper cannot produce it, so a hashed key
// never equals a plain one.
const hashedKey = "%#"

// UserKey is a user's key in the form used in Redis keys: escaped, or replaced by its hash if it is long. It is
// never longer than 64 bytes.
type UserKey string

// NewUserKey converts any bytes to a UserKey. Different keys never become the same UserKey.
func NewUserKey(original string) UserKey {
	if len(original) <= maxPlainKey {
		if !strings.ContainsAny(original, "{}%") {
			return UserKey(original)
		}
		if escaped := keyEscaper.Replace(original); len(escaped) <= maxPlainKey {
			return UserKey(escaped)
		}
	}
	sum := sha256.Sum256([]byte(original))
	return UserKey(hashedKey + base64.RawURLEncoding.EncodeToString(sum[:]))
}

var keyEscaper = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D")

// Keyspace makes Redis keys: PREFIX:{USERKEY}:RULE.
//
// The braces make the user key the hash tag, so that on a Cluster all rules of
// one user key share a slot. User keys are any bytes; "{", "}" and "%" in them
// are escaped, so they can neither choose the slot nor run into the rule's name:
// different rules or user keys never share a Redis key.
//
// With shared hash tags (see [Keyspace.WithHashTags]) it makes PREFIX:{%NUMBER}{USERKEY}:RULE,
// where the first braces are the hash tag.
type Keyspace struct {
	prefix string
	tags   []string // nil: the user key is the hash tag
}

// NewKeyspace returns the keyspace of a prefix, which must be 1 to 32 letters, digits, "_", "-", "." or ":".
func NewKeyspace(prefix string) (Keyspace, error) {
	if prefix == "" || len(prefix) > 32 || strings.ContainsFunc(prefix, func(r rune) bool { return !wordRune(r) && r != ':' }) {
		return Keyspace{}, fmt.Errorf("%w: key prefix %q, must be 1 to 32 characters, each a letter, a digit or one of %q", limit.ErrInvalidOption, prefix, "_-.:")
	}
	return Keyspace{prefix: prefix}, nil
}

// CheckRuleName returns an error unless a rule's name can be part of a Redis key and a metric
// label: 1 to 64 letters, digits, "_", "-", "." or "/".
func CheckRuleName(name string) error {
	if name == "" || len(name) > 64 || strings.ContainsFunc(name, func(r rune) bool { return !wordRune(r) && r != '/' }) {
		return fmt.Errorf("%w: name %q, must be 1 to 64 letters, digits, _, -, . or /", limit.ErrInvalidRule, name)
	}
	return nil
}

func wordRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' || r == '.'
}

// WithHashTags returns a keyspace with n hash tags, 1 to [SlotCount], instead of one for each user key. The
// tags' slots are at equal distances, and a user key gets a tag near its own slot. So masters that have equal
// shares of the slots have equal shares of the keys.
func (k Keyspace) WithHashTags(n int) Keyspace {
	k.tags = make([]string, n)
	missing := make(map[uint16]int, n) // by slot
	for i := range k.tags {
		missing[k.slotOfTag(i)] = i
	}
	for number := 0; len(missing) > 0; number++ {
		tag := "%" + strconv.Itoa(number)
		if i, wanted := missing[hashSlot(tag)]; wanted {
			k.tags[i] = tag
			delete(missing, hashSlot(tag))
		}
	}
	return k
}

// Key returns the Redis key of a user key under a rule.
func (k Keyspace) Key(rule string, key UserKey) string {
	if k.tags == nil {
		return k.prefix + ":{" + string(key) + "}:" + rule
	}
	return k.prefix + ":{" + k.tags[k.tagOf(key)] + "}{" + string(key) + "}:" + rule
}

// Slot returns the Redis Cluster hash slot of all Redis keys that are made from a user key.
func (k Keyspace) Slot(key UserKey) uint16 {
	if k.tags == nil {
		return hashSlot(string(key))
	}
	return k.slotOfTag(k.tagOf(key))
}

// tagOf returns the number of a user key's hash tag.
func (k Keyspace) tagOf(key UserKey) int { return int(hashSlot(string(key))) * len(k.tags) / SlotCount }

// slotOfTag returns the slot in the middle of the tag's range of slots.
func (k Keyspace) slotOfTag(i int) uint16 { return uint16((2*i + 1) * SlotCount / (2 * len(k.tags))) }

// markerKey returns the key that holds the number of an instance's last charge to a key. It has the same hash
// tag, and cannot equal a rule's key, since names of rules have no ":".
func markerKey(redisKey, instance string) string { return redisKey + ":charged:" + instance }

// fleetKey returns the key of the fleet's membership. No user key can equal it, since "%" begins an
// escape.
func (k Keyspace) fleetKey() string { return k.prefix + ":{%fleet}" }

// fleetKeyIn returns the key of the membership in one slot of a Cluster. Among the first 200,000 numbers there
// is almost certainly one that hashes to the given slot.
func (k Keyspace) fleetKeyIn(slot uint16) string {
	for n := 0; ; n++ {
		if tag := "%fleet:" + strconv.Itoa(n); hashSlot(tag) == slot {
			return k.prefix + ":{" + tag + "}"
		}
	}
}

// leaseKey and holdsKey return the Redis keys of a key's leases and of its holds. Like those of markerKey, they
// cannot equal a rule's key.
func leaseKey(redisKey string) string { return redisKey + ":lease" }
func holdsKey(redisKey string) string { return redisKey + ":holds" }
