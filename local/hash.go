package local

import "hash/maphash"

// Hasher turns keys into hashes. Its seeds are random for each process, so no one who
// chooses keys can make two of them collide; and that two of them do by chance is as
// likely as a given one of 2^64 lots being drawn, so hashes stand for keys.
type Hasher struct {
	keys, uses maphash.Seed
}

// NewHasher returns a Hasher with seeds of its own.
func NewHasher() Hasher {
	return Hasher{keys: maphash.MakeSeed(), uses: maphash.MakeSeed()}
}

// Salt returns a number to tell one use of the same keys from another: a rule
// from another rule.
func (h Hasher) Salt(use string) uint64 { return maphash.String(h.uses, use) }

// Hash is the hash of a user key. XOR it with a salt.
func (h Hasher) Hash(userKey string) uint64 { return maphash.String(h.keys, userKey) }
