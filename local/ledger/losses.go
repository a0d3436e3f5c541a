package ledger

import "sync/atomic"

// losses say of which rules, and of which groups, units were lost that Redis should have been
// charged for: because their line made way, or because it is not known whether they were charged.
type losses struct {
	last    atomic.Int64              // when the last of them will have left its window
	inGroup []atomic.Int64            // the same by group
	ofRule  [ruleNumbers]atomic.Int64 // the same by the number of the rule
}

// Loss is units of a rule that will never be charged in Redis. They have left their windows by
// Until. Of rules that share a number, see [Ledger.RuleNumber], each is told in place of the others.
type Loss struct {
	Rule  string
	Until int64
}

// Lost tells what was lost of some groups and has not left its window at now.
func (l *Ledger[O]) Lost(in func(group int) bool, now int64) (lost []Loss) {
	if l.losses.last.Load() <= now {
		return nil
	}
	until := int64(0)
	for group := range l.losses.inGroup {
		if t := l.losses.inGroup[group].Load(); t > until && in(group) {
			until = t
		}
	}
	l.rules.mu.Lock()
	defer l.rules.mu.Unlock()
	for name, number := range l.rules.numbers {
		if t := min(l.losses.ofRule[number].Load(), until); t > now {
			lost = append(lost, Loss{name, t})
		}
	}
	return lost
}

// Lose says that units of a debt will not be charged. They have left their windows by then.
func (l *Ledger[O]) Lose(d Debt[O], gone int64) { l.lose(d.Rule, d.Group, gone) }

func (l *Ledger[O]) lose(rule uint8, group int, gone int64) {
	raise(&l.losses.ofRule[rule], gone)
	raise(&l.losses.inGroup[group], gone)
	raise(&l.losses.last, gone)
}

func raise(a *atomic.Int64, to int64) {
	for {
		n := a.Load()
		if to <= n || a.CompareAndSwap(n, to) {
			return
		}
	}
}
