package tiered

import (
	"strings"

	"github.com/tierlimit/tierlimit/remote"
)

// callKey is the key of a call, with values computed from it once, in the caller's goroutine, so
// that a long key costs only its own caller.
type callKey struct {
	said string
	hash uint64         // by which this process remembers it
	name remote.UserKey // in Redis, and wherever a key is kept; "" before it is asked for
	hold *holding       // nil: units are charged for good
}

func (l *Limiter) key(said string) callKey { return callKey{said: said, hash: l.hasher.Hash(said)} }

// kept returns the key for use beyond the call: without the original key, which may be long.
func (k *callKey) kept() callKey {
	other := *k
	other.said, other.name = "", remote.UserKey(strings.Clone(string(k.inRedis())))
	return other
}

// inRedis returns the key in the form used in Redis keys: of a long one only a hash.
func (k *callKey) inRedis() remote.UserKey {
	if k.name == "" {
		k.name = remote.NewUserKey(k.said)
	}
	return k.name
}
