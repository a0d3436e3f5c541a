package outage

import (
	"fmt"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/local/ledger"
	"github.com/tierlimit/tierlimit/remote"
)

// Rule is what of a limiter's rule matters without Redis. It is immutable.
type Rule struct {
	Name      string
	Limit     limit.Limit
	Algorithm limit.Algorithm
	Policy    Policy
	Encoded   *remote.Rule
	Capacity  int64  // what Redis can have free at most
	Sliding   bool   // what is not free of it are the units of the last window
	Salt      uint64 // tells the rule's name and window from all others
	Number    uint8  // of the name in the ledger
}

// Question is what was asked for.
type Question struct {
	Rule      *Rule
	Hash      uint64 // of the key, by which this process remembers it
	Key       remote.UserKey
	Cost      int64
	Operation int // lua.Take, lua.TakeUpTo or lua.Peek
}

// account is what the ledger has to know of the key.
func (q *Question) account() ledger.Account {
	return ledger.Account{
		Hash: q.Hash ^ q.Rule.Salt, Window: q.Rule.Limit.Window(), Quota: q.Rule.Limit.Quota(), Owner: q.Rule, Key: string(q.Key), Rule: q.Rule.Number,
	}
}

// decision is what is the same in all decisions of a tier.
func (r *Rule) decision(tier limit.Tier) limit.Decision {
	return limit.Decision{Tier: tier, Limit: r.Limit.Quota(), Algorithm: r.Algorithm}
}

// Policy says what a rule does while Redis cannot be reached; tiered.OutagePolicy has the words
// for users.
type Policy uint8

// The policies.
const (
	Approximate Policy = iota
	Allow
	Deny
)

// String returns "approximate", "allow" or "deny".
func (p Policy) String() string {
	switch p {
	case Approximate:
		return "approximate"
	case Allow:
		return "allow"
	case Deny:
		return "deny"
	}
	return fmt.Sprintf("OutagePolicy(%d)", p)
}
