package local

import "hash/maphash"

// Hasher turns keys into hashes. Its seeds are random for each process, so no
// one who chooses keys can make two of them collide.
type Hasher struct {
	seed, checkSeed maphash.Seed
}

// NewHasher returns a Hasher with seeds of its own.
func NewHasher() Hasher {
	return Hasher{seed: maphash.MakeSeed(), checkSeed: maphash.MakeSeed()}
}

// Salt returns a number to tell one use of the same keys from another: a rule
// from another rule.
func (h Hasher) Salt(use string) uint64 { return maphash.String(h.checkSeed, use) }

// Hash is the hash of a user key. XOR it with a salt.
func (h Hasher) Hash(userKey string) uint64 { return maphash.String(h.seed, userKey) }

// check is a second, independent hash, to tell keys apart whose first one is the
// same.
func (h Hasher) check(userKey string) uint64 { return maphash.String(h.checkSeed, userKey) }
