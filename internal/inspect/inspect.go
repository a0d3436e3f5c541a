// Package inspect is how the live page sees into a limiter: what package tiered shows
// to packages of this module and does not promise to anyone else.
package inspect

import (
	"context"
	"time"

	"github.com/tierlimit/tierlimit/limit"
)

// Of returns the inside of a *tiered.Limiter. Package tiered sets it when it is
// initialized, which whoever has a limiter can rely on.
var Of func(limiter any) Inside

// Inside is the inside of a limiter. It is safe for concurrent use.
type Inside interface {
	// Snapshot is what the limiter knows and has done by now. It makes no trip.
	Snapshot() Snapshot
	// Watch has f called after each decision, by whoever asked for it, until stop is
	// called. There is one watcher at most: ok is false if there is one already.
	Watch(f Watcher) (stop func(), ok bool)
	// RememberOwnLimits has the limiter remember from now on which keys have a limit of their
	// own, see Rule.OwnLimit.
	RememberOwnLimits()
	// Context ends when the limiter is closed.
	Context() context.Context
	// AfterClose has Close call f before it returns, when nothing uses Redis any more. It must be
	// called before anybody else has the limiter.
	AfterClose(f func())
}

// Watcher is told of a decision. It must return quickly and may be called by many
// goroutines at once; it may still be called shortly after it was stopped.
type Watcher func(rule, key string, denied bool)

// Snapshot is a limiter at an instant.
type Snapshot struct {
	At                time.Time
	State             string // who decides: "healthy", "outage" or "settling"
	Reason            string // why Redis could not be asked last, if it counts as lost
	Breaker           string // "closed", "half-open" or "open"
	FleetSize         int
	FleetHeard        bool // the size is Redis's word, not an assumption
	RememberedDenials int
	Prefix            string
	Deadline          time.Duration
	Rules             []Rule // by name
	Health            Health
}

// Rule is a rule and what it has decided.
type Rule struct {
	Name         string
	Limit        limit.Limit // as it was given
	Algorithm    string      // with its dials, and GCRA's burst
	Capacity     int64       // the largest cost that fits
	WorstCase    int64
	Why          string // it has this algorithm
	OutagePolicy string
	Counts       []Count // by tier
	Errors       uint64
	Held         Held

	// OwnLimit is the limit of its own that this process held a key to last; ok is false if it
	// knows of none.
	OwnLimit func(key string) (l limit.Limit, ok bool)
	// WithLimit is the rule under another limit.
	WithLimit func(limit.Limit) (Rule, error)

	Peek  func(ctx context.Context, key string, cost int64) (limit.Decision, error)
	Reset func(ctx context.Context, key string) error
}

// Held is what this process holds under a rule, and what became of what it held.
type Held struct {
	// Units are held now: by slots of a limit on what is in flight, or by Open holds.
	Units, Open int64
	// Settled is how many settlements were made, and Waiting how many wait for Redis. Reclaimed is how many came so late that the
	// units had been given back, and LostHolds of how many Redis did not know the hold.
	Settled, Waiting, Reclaimed, LostHolds int64
	// LostSlots is how many slots were lost before they were released.
	LostSlots uint64
}

// Count is how many decisions a tier has made.
type Count struct {
	Tier            limit.Tier
	Allowed, Denied uint64
	HeldBack        uint64 // would not have denied, but another limit of the same request did
}

// Health is how a limiter and its Redis have been.
type Health struct {
	Masters []Master // of a Cluster; one node is one
	// WaitingUnits of WaitingKeys were granted without Redis, and wait to be charged there.
	WaitingUnits, WaitingKeys int64
	// TripCounts are trips to Redis since the limiter was made, by how long they took: at most as
	// many seconds as the bound of the same place, and more than the one before. The last is of
	// those above all bounds.
	TripBounds []float64
	TripCounts []uint64
}

// Master is a Redis that holds keys.
type Master struct {
	Address string // "" if it is not known
	State   string
	Since   time.Time // of that state
	// LastError is why it could not be asked last, "" if it always could.
	LastError   string
	LastErrorAt time.Time
}
