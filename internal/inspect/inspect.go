// Package inspect gives the live page, and other packages of this module, access to parts of a limiter
// that package tiered does not export.
package inspect

import (
	"context"
	"time"

	"github.com/tierlimit/tierlimit/limit"
)

// Of returns the Inside of a *tiered.Limiter. Package tiered sets Of when it is initialized.
var Of func(limiter any) Inside

// Inside is the view of a limiter from inside. It is safe for concurrent use.
type Inside interface {
	// Snapshot returns the limiter's state and counters at this moment. It makes no trip to Redis.
	Snapshot() Snapshot
	// Watch makes the goroutine of each decision call f after the decision, until stop is called. There
	// is at most one watcher: ok is false if there is one already.
	Watch(f Watcher) (stop func(), ok bool)
	// RememberOwnLimits makes the limiter remember, from now on, which keys have a limit of their own;
	// see Rule.OwnLimit.
	RememberOwnLimits()
	// Owns reports whether a *tiered.Rule belongs to the limiter.
	Owns(rule any) bool
	// Context ends when the limiter is closed.
	Context() context.Context
	// AfterClose makes Close call f before it returns, when nothing uses Redis any more. It must be
	// called before the limiter is passed to anybody else.
	AfterClose(f func())
}

// Watcher is called with each decision. It must return quickly. Many goroutines may call it at the same
// time, and it may still be called shortly after it was stopped.
type Watcher func(rule, key string, denied bool)

// Snapshot has the state and the counters of a limiter at one moment.
type Snapshot struct {
	At                time.Time
	State             string // who decides: "healthy", "outage" or "settling"
	Reason            string // why Redis last could not be asked, if it counts as lost
	Breaker           string // "closed", "half-open" or "open"
	FleetSize         int
	FleetHeard        bool // whether Redis has reported FleetSize; otherwise it is assumed
	RememberedDenials int
	Prefix            string
	Deadline          time.Duration
	Rules             []Rule // in force, by name
	// Allowed and Denied count the decisions of all rules, including those that are no longer in force, so
	// that they never become smaller.
	Allowed, Denied uint64
	Health          Health
}

// Rule describes a rule and counts its decisions.
type Rule struct {
	Name         string
	Limit        limit.Limit // as it was given
	Algorithm    string      // with its parameters, and with GCRA's burst
	Capacity     int64       // the largest cost that fits
	WorstCase    int64
	Why          string // the reason for the algorithm
	OutagePolicy string
	Counts       []Count // by tier, including those on a dry run
	Errors       uint64
	Held         Held

	// OwnLimit returns the key's own limit that this process last applied to the key; ok is false if no
	// own limit is known.
	OwnLimit func(key string) (l limit.Limit, ok bool)
	// WithLimit returns the rule with another limit.
	WithLimit func(limit.Limit) (Rule, error)

	// DryRun says that the rule never denies. Peek returns what it would decide otherwise.
	DryRun bool

	Peek  func(ctx context.Context, key string, cost int64) (limit.Decision, error)
	Reset func(ctx context.Context, key string) error
}

// Held counts the units that this process holds under a rule, and how its holds and slots ended.
type Held struct {
	// Units is the number of units held now, by slots of a limit on what is in flight or by holds. Open
	// is the number of open holds.
	Units, Open int64
	// Settled is the number of settlements that were made, and Waiting is the number that wait for Redis.
	// Reclaimed is the number of settlements that came after the units had been given back. LostHolds is
	// the number of settlements whose hold Redis did not know.
	Settled, Waiting, Reclaimed, LostHolds int64
	// LostSlots is the number of slots that were lost before they were released.
	LostSlots uint64
}

// Count counts the decisions of a tier.
type Count struct {
	Tier            limit.Tier
	Allowed, Denied uint64
	HeldBack        uint64 // did not deny, while another limit of the same request did
}

// Health describes the masters, the units that must still be charged, and the duration of trips.
type Health struct {
	Masters []Master // of a Cluster; a single node counts as one master
	// WaitingUnits, of WaitingKeys keys, were granted without Redis and must still be charged there.
	WaitingUnits, WaitingKeys int64
	// TripCounts has the number of trips to Redis since the limiter was made, by duration: element i
	// counts those that took at most TripBounds[i] seconds and more than the bound before it. The last
	// element counts trips above all bounds.
	TripBounds []float64
	TripCounts []uint64
}

// Master describes a server that holds keys: a master of a Cluster, or the single node.
type Master struct {
	Address string // "" if the address is not known
	State   string
	Since   time.Time // when the state began
	// LastError is the error of the last failed attempt to ask the server; "" if no attempt has failed.
	LastError   string
	LastErrorAt time.Time
}
