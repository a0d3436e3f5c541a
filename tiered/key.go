package tiered

import "github.com/tierlimit/tierlimit/remote"

// callKey is the key of a call, and what is made of it: once, and in the goroutine of the
// caller, who alone pays for a long one.
type callKey struct {
	said string
	hash uint64         // by which this process remembers it
	name remote.UserKey // in Redis, and wherever a key is kept; "" before it is asked for
	hold *holding       // nil: units are charged for good
}

func (l *Limiter) key(said string) callKey { return callKey{said: said, hash: l.hasher.Hash(said)} }

// inRedis is the key as it stands in Redis keys: of a long one no more than a hash.
func (k *callKey) inRedis() remote.UserKey {
	if k.name == "" {
		k.name = remote.NewUserKey(k.said)
	}
	return k.name
}
