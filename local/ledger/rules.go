package ledger

import "sync"

// rules number the rules by name, so that a record names its rule in one byte. With more than 256
// rules some share a number, and so their part of each set.
type rules struct {
	mu      sync.Mutex
	numbers map[string]uint8
}

// RuleNumber returns the number of the rule of a name, see [Account].
func (l *Ledger) RuleNumber(name string) uint8 {
	l.rules.mu.Lock()
	defer l.rules.mu.Unlock()
	number, known := l.rules.numbers[name]
	if !known {
		number = uint8(len(l.rules.numbers))
		l.rules.numbers[name] = number
	}
	return number
}
