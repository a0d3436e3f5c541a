package outage

import (
	"cmp"
	"math"
	"sync/atomic"
	"time"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/local/ledger"
	"github.com/tierlimit/tierlimit/remote"
)

// Rule has the properties of a limiter's rule that are needed without Redis. A Rule is immutable, but another may take
// its place. A rule with slots, which are not in the ledger, has only a name, a limit, an algorithm and a policy.
type Rule struct {
	Name      string
	Limit     limit.Limit
	Algorithm limit.Algorithm
	Policy    Policy
	Encoded   *remote.Rule
	Capacity  int64  // the largest number of units that can be free in Redis
	Sliding   bool   // capacity that is not free equals the units of the last window
	Salt      uint64 // differs for each rule name and window
	Terms     uint64 // differs for each limit and algorithm
	Number    uint8  // number of the name in the ledger

	succession atomic.Pointer[succession] // nil: no rule has taken its place, and it has taken nobody's
}

// succession is shared by rules that came one after the other. It refers only to the last of them. So a rule that is
// kept, such as that of an open hold, or the first of a program that changes it all the time, keeps none of those in
// between (law 7).
type succession struct{ last atomic.Pointer[Rule] }

// TakeOver makes the rule the successor of another one, which may be nil. Calls must not overlap.
func (r *Rule) TakeOver(other *Rule) {
	if other == r {
		return
	}
	joined, others := r.isLastOf(), other.isLastOf()
	if others != nil {
		others.last.Store(r)
	}
	if joined = cmp.Or(joined, others); joined == nil {
		joined = new(succession)
		joined.last.Store(r) // first, so that Latest always finds one
	}
	r.succession.Store(joined)
	if other != nil {
		other.succession.Store(joined)
	}
}

// isLastOf returns the succession of which the rule, which may be nil, is the last one, or nil if there is none.
func (r *Rule) isLastOf() *succession {
	if r == nil {
		return nil
	}
	if of := r.succession.Load(); of != nil && of.last.Load() == r {
		return of
	}
	return nil
}

// Latest returns the last of the rule's successors, or the rule itself if it has none. What a rule has charged is given
// back, and corrected to what was used, under the latest one. The old rule would convert the key's state to its own
// algorithm, and the next decision would convert it back. Each conversion from GCRA counts units that may be free.
func (r *Rule) Latest() *Rule {
	for {
		of := r.succession.Load()
		if of == nil {
			return r
		}
		last := of.last.Load()
		if last == r {
			return r
		}
		r = last
	}
}

// windowStart returns when the fixed window began that contains a moment of Redis's clock; both are in µs.
func (r *Rule) windowStart(clock int64) int64 {
	if r.Limit.IsCalendar() {
		start, _ := r.Limit.Calendar(time.UnixMicro(clock))
		return start.UnixMicro()
	}
	return clock - clock%r.Limit.Window().Microseconds()
}

// Request is a request for units.
type Request struct {
	Rule      *Rule
	Hash      uint64 // hash by which this process remembers the key
	Key       remote.UserKey
	Cost      int64
	Operation int // lua.Take, lua.TakeUpTo or lua.Peek
}

// account returns the key's account for the ledger.
func (q *Request) account() ledger.Account[*Rule] {
	return ledger.Account[*Rule]{
		Hash: q.Hash ^ q.Rule.Salt, Window: q.Rule.Limit.Window(), Quota: q.Rule.Limit.Quota(), Owner: q.Rule, Key: string(q.Key), Terms: q.Rule.Terms, Rule: q.Rule.Number,
	}
}

// chargesFor returns the charges for a debt. They carry ages, not times. So a charge that is delayed on its
// way counts as younger, and its units leave the window late rather than early. decides is the time since when Redis
// has decided.
func (r *Rule) chargesFor(d ledger.Debt[*Rule], now, decides int64, fleet int) (charges []remote.Charge) {
	if r.Algorithm.Same(limit.GCRA()) {
		if units := r.debt(d, now, decides, fleet); units > 0 {
			charges = append(charges, remote.Charge{Units: units})
		}
		return charges
	}
	for _, p := range d.Parts {
		charges = append(charges, remote.Charge{Units: p.Units, Age: time.Duration(max(0, now-p.At))})
	}
	return charges
}

// debt returns the units that are left of a debt under GCRA now. Units that were granted in an outage have been paid off
// at the rate of this instance's share, since each instance granted no more than its share: the debt of the fleet is at
// most the sum of its instances' debts.
//
// Units that were granted since Redis decides are left in full, because Redis has granted the rest of the rate to others
// meanwhile. Otherwise a key that is asked for more than its limit under overload would get the limit from Redis, and
// the shares in addition. If the key was not at its limit, this counts what time has paid off since they were granted,
// which is a part of a second unless very many keys must be charged.
func (r *Rule) debt(d ledger.Debt[*Rule], now, decides int64, fleet int) int64 {
	share := d.Share * float64(r.Limit.Quota())
	if share == 0 {
		share = float64(r.Limit.Quota()) / float64(max(1, fleet))
	}
	paid := func(from, to int64) float64 { return share * float64(to-from) / float64(r.Limit.Window()) }
	units, last, inFull := 0.0, int64(0), int64(0)
	for _, p := range d.Parts {
		if p.At >= decides {
			inFull += p.Units
			continue
		}
		units = max(0, units-paid(last, p.At)) + float64(p.Units)
		last = p.At
	}
	return int64(math.Ceil(max(0, units-paid(last, now)))) + inFull
}

// begin sets d to what all decisions of a tier without Redis have in common.
func (r *Rule) begin(d *limit.Decision, tier limit.Tier) {
	*d = limit.Decision{}
	d.Tier, d.Limit, d.Algorithm, d.ResetAfter = tier, r.Limit.Quota(), r.Algorithm, r.Limit.Window()
}

// Policy says what a rule does while Redis cannot be reached; see tiered.OutagePolicy.
type Policy uint8

// The policies.
const (
	Approximate Policy = iota
	Allow
	Deny
)

var policyNames = [...]string{Approximate: "approximate", Allow: "allow", Deny: "deny"}

// String returns "approximate", "allow" or "deny".
func (p Policy) String() string { return nameOf("OutagePolicy", policyNames[:], int(p)) }
