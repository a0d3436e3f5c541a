package tiered

import (
	"hash/maphash"
	"sync/atomic"

	"github.com/tierlimit/tierlimit/limit"
)

// ownLimitsKept is for how many keys it is remembered which limit of their own they have, at
// most: 8 bytes each, and about 100 for those that have one.
const ownLimitsKept = 1 << 14

// ownLimits remembers which limit of its own a key was held to last, for the live page: only the
// program knows who has which. Keys that meet in a place push each other out. It is safe for
// concurrent use.
type ownLimits struct {
	seed   maphash.Seed
	any    atomic.Bool
	places [ownLimitsKept]atomic.Pointer[ownLimit]
}

// ownLimit is the limit of a key, of which a hash is kept.
type ownLimit struct {
	rule  string
	hash  uint64
	limit limit.Limit
}

func (o *ownLimits) place(rule, key string) (*atomic.Pointer[ownLimit], uint64) {
	hash := maphash.String(o.seed, key) ^ maphash.String(o.seed, rule)*2
	return &o.places[hash%ownLimitsKept], hash
}

// decided is told of each decision. While a key's limit stays the same it writes nothing.
func (o *ownLimits) decided(r *Rule, key string) {
	if !r.own && !o.any.Load() {
		return
	}
	place, hash := o.place(r.name, key)
	known := place.Load()
	same := known != nil && known.hash == hash && known.rule == r.name
	switch {
	case !r.own && same:
		place.CompareAndSwap(known, nil)
	case r.own && (!same || known.limit != r.asked):
		place.Store(&ownLimit{r.name, hash, r.asked})
		o.any.Store(true)
	}
}

// of is the limit of its own that a key was held to last, if it is known to have one.
func (o *ownLimits) of(rule, key string) (limit.Limit, bool) {
	place, hash := o.place(rule, key)
	known := place.Load()
	if known == nil || known.hash != hash || known.rule != rule {
		return limit.Limit{}, false
	}
	return known.limit, true
}
