package ledger

import "sync"

const ruleNumbers = 1 << 8

// rules numbers the rules by name, so that a record can store its rule in a byte. If there are more than
// 256 rules, some share a number, and thus their part of each set and their losses.
type rules struct {
	mu      sync.Mutex
	numbers map[string]uint8
}

// RuleNumber returns the number of the rule of a name; see [Account].
func (l *Ledger[O]) RuleNumber(name string) uint8 {
	l.rules.mu.Lock()
	defer l.rules.mu.Unlock()
	number, known := l.rules.numbers[name]
	if !known {
		number = uint8(len(l.rules.numbers))
		l.rules.numbers[name] = number
	}
	return number
}
