package ledger

import "sync/atomic"

// losses say for which rules, and for which groups, units were lost that Redis should have been charged
// for. They were lost because their line was evicted, or because nobody knows whether they were charged.
type losses struct {
	inGroup []atomic.Int64            // when the last of a group's lost units will have left their window
	ofRule  [ruleNumbers]atomic.Int64 // the same by the number of the rule
}

// Loss says that units of a rule will never be charged in Redis. By Until, the units have left their
// windows. If several rules share a number (see [Ledger.RuleNumber]), a loss of one is reported for each
// of them.
type Loss struct {
	Rule  string
	Until int64
}

// Lost returns the losses in some groups whose units have not left their windows at now.
func (l *Ledger[O]) Lost(in func(group int) bool, now int64) (lost []Loss) {
	until := int64(0)
	for group := range l.losses.inGroup {
		if t := l.losses.inGroup[group].Load(); t > until && in(group) {
			until = t
		}
	}
	l.rules.mu.Lock()
	defer l.rules.mu.Unlock()
	for name, r := range l.rules.named {
		t := l.losses.ofRule[r.number].Load()
		switch {
		case min(t, until) > now:
			lost = append(lost, Loss{name, min(t, until)})
		case r.uses == 0 && t <= now:
			l.rules.forget(name, r)
		}
	}
	return lost
}

// Lose records that units of a debt will not be charged. By gone, they have left their windows.
func (l *Ledger[O]) Lose(d Debt[O], gone int64) { l.lose(d.Rule, d.Group, gone) }

func (l *Ledger[O]) lose(rule uint8, group int, gone int64) {
	raise(&l.losses.ofRule[rule], gone)
	raise(&l.losses.inGroup[group], gone)
}

func raise(a *atomic.Int64, to int64) {
	for {
		n := a.Load()
		if to <= n || a.CompareAndSwap(n, to) {
			return
		}
	}
}
