package tiered

import (
	"hash/maphash"
	"sync/atomic"

	"github.com/tierlimit/tierlimit/limit"
)

// ownLimitsKept is the number of keys whose own limits are remembered. Each place takes 8 bytes, and
// about 100 more if its key has an own limit.
const ownLimitsKept = 1 << 14

// ownLimits remembers the own limit that was last applied to a key, for the live page, because only the
// program knows which key has which limit. Each place of the table holds the last key with an own limit
// that used it. ownLimits is safe for concurrent use.
type ownLimits struct {
	seed   maphash.Seed
	any    atomic.Bool
	places [ownLimitsKept]atomic.Pointer[ownLimit]
}

// ownLimit is the limit of a key. The key is kept as a hash.
type ownLimit struct {
	rule  string
	hash  uint64
	limit limit.Limit
}

func (o *ownLimits) place(rule, key string) (*atomic.Pointer[ownLimit], uint64) {
	hash := maphash.String(o.seed, key) ^ maphash.String(o.seed, rule)*2
	return &o.places[hash%ownLimitsKept], hash
}

// decided is called for each decision. It writes to the table only if a key's limit has changed.
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
	case r.own && (!same || known.limit != r.given):
		place.Store(&ownLimit{r.name, hash, r.given})
		o.any.Store(true)
	}
}

// of returns the own limit that was last applied to a key, if it is known to have one.
func (o *ownLimits) of(rule, key string) (limit.Limit, bool) {
	place, hash := o.place(rule, key)
	known := place.Load()
	if known == nil || known.hash != hash || known.rule != rule {
		return limit.Limit{}, false
	}
	return known.limit, true
}
