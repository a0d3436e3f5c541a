package model

// Terms are the terms of a lease, as in remote.Lease; Life is in µs.
type Terms struct {
	ID, Over            uint64
	Most, Reserve, Life int64
}

// lease has units that one process may spend until the lease ends, at the key's own time.
type lease struct {
	id          uint64
	ends, units int64
}

const (
	// longestLease is the longest time that a lease can last. maxLeases is the largest number of leases of a key.
	longestLease = 1_000_000
	maxLeases    = 64
)

func (k *key) Lease(now, wanted int64, terms Terms) Outcome {
	t := k.clock.read(now)
	units := k.current()
	var others []lease
	out, changed := int64(0), false
	for _, l := range k.leases {
		switch {
		case l.id == terms.Over:
			changed = true
			continue
		case l.ends <= t:
			continue
		case l.ends > t+longestLease:
			l.ends = t + longestLease
			changed = true
		}
		others = append(others, l)
		out += l.units
	}

	outcome := Outcome{Allowed: true}
	share := (max(0, terms.Most-out) + 1) / 2
	spare := max(0, units.free(t)-terms.Reserve) / 2
	granted := min(wanted, share, spare)
	if granted > 0 && len(others) < maxLeases {
		outcome.Granted, outcome.Life = granted, terms.Life
		if f, ok := units.(*fixedWindow); ok {
			outcome.Life = min(outcome.Life, f.untilEnd(t))
		}
		units.charge(t, granted)
		k.charged(units, t)
		others = append(others, lease{terms.ID, t + outcome.Life, granted})
		changed = true
	}
	// A lease that has ended stays if nothing else changes: the clock may step back.
	if changed {
		k.leases = others
	}
	return k.withState(now, outcome)
}
