package tiered

import (
	"strings"

	"github.com/tierlimit/tierlimit/remote"
)

// callKey is the key of a call, with values that are computed from it once. They are computed in the
// caller's goroutine, so that a long key costs only its own caller.
type callKey struct {
	original string         // as the caller gave it; "" in a key that is kept
	hash     uint64         // hash by which this process remembers the key
	name     remote.UserKey // name in Redis, and wherever a key is kept; "" until it is needed
	hold     *holding       // nil: units are charged for good
}

func (l *Limiter) key(original string) callKey {
	return callKey{original: original, hash: l.hasher.Hash(original)}
}

// kept returns the key for use beyond the call. It does not keep the original key, which may be long.
func (k *callKey) kept() callKey {
	other := *k
	other.original, other.name = "", remote.UserKey(strings.Clone(string(k.inRedis())))
	return other
}

// inRedis returns the key in the form used in Redis keys. A long key is replaced by a hash.
func (k *callKey) inRedis() remote.UserKey {
	if k.name == "" {
		k.name = remote.NewUserKey(k.original)
	}
	return k.name
}
