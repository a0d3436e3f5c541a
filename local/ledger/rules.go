package ledger

import (
	"slices"
	"sync"
)

const ruleNumbers = 1 << 8

// rules numbers the rules by name, so that a record can store its rule in a byte. If there are more than
// 256 rules, some share a number, and so also their part of each set and their losses.
type rules struct {
	mu    sync.Mutex
	named map[string]*namedRule
	names [ruleNumbers]int // of each number
}

type namedRule struct {
	number uint8
	uses   int // the number of rules of the name; see ForgetRule
}

// RuleNumber returns the number of the rule of a name; see [Account]. Call [Ledger.ForgetRule] when the
// rule is no longer used.
func (l *Ledger[O]) RuleNumber(name string) uint8 {
	l.rules.mu.Lock()
	defer l.rules.mu.Unlock()
	r := l.rules.named[name]
	if r == nil {
		r = &namedRule{number: l.rules.leastShared()}
		l.rules.named[name] = r
		l.rules.names[r.number]++
	}
	r.uses++
	return r.number
}

// ForgetRule ends one use of a rule's number. Names that are not used any more do not keep a number: rules
// of a file come and go, and if their names shared numbers with rules in use, a loss of one rule would make
// many settle. A name with losses is forgotten by [Ledger.Lost], when these are over.
func (l *Ledger[O]) ForgetRule(name string) {
	l.rules.mu.Lock()
	defer l.rules.mu.Unlock()
	r := l.rules.named[name]
	if r.uses--; r.uses == 0 && l.losses.ofRule[r.number].Load() == 0 {
		l.rules.forget(name, r)
	}
}

// forget gives a name's number back. mu must be held.
func (r *rules) forget(name string, named *namedRule) {
	delete(r.named, name)
	r.names[named.number]--
}

// leastShared returns a number that the fewest names have. mu must be held.
func (r *rules) leastShared() uint8 {
	return uint8(slices.Index(r.names[:], slices.Min(r.names[:])))
}
