package local

import "hash/maphash"

// Hasher computes the hashes of keys. Its seeds are random for each process, so nobody can choose keys
// that collide. Two given keys collide by chance with a probability of 2^-64, so a hash can stand for its
// key.
type Hasher struct {
	keys, uses maphash.Seed
}

// NewHasher returns a Hasher with new random seeds.
func NewHasher() Hasher {
	return Hasher{keys: maphash.MakeSeed(), uses: maphash.MakeSeed()}
}

// Salt returns a number that distinguishes uses of the same keys, such as rules.
func (h Hasher) Salt(use string) uint64 { return maphash.String(h.uses, use) }

// Hash returns the hash of a user key. XOR it with a salt.
func (h Hasher) Hash(userKey string) uint64 { return maphash.String(h.keys, userKey) }
