package ledger

// overflow describes the records of a set that were evicted while they had units in their windows. A key
// without a record may have had one of them. If such a key were granted its share again, a flood of keys
// would get any number of shares (law 11). So the key starts with arrears of as many units as any of
// those records had.
type overflow struct {
	made [sizeClasses]arrears // arrears of keys without a record, by size class
	owed [ledgerWays]arrears  // arrears of the keys that have a record in the set
}

// sizeClasses is the number of classes of limits that are distinguished. Records that are evicted in one
// class cause no arrears in another.
const sizeClasses = 4

// arrears are the most units that a key may have been granted in addition to those on its record: units
// until gone, and after that later.units until later.gone, when all have left their windows.
type arrears struct {
	units, gone int64
	later       struct{ units, gone int64 }
}

// at returns what is left of the arrears at a moment.
func (d arrears) at(now int64) arrears {
	if d.gone <= now {
		d.units, d.gone = d.later.units, d.later.gone
		d.later.units, d.later.gone = 0, 0
	}
	if d.gone <= now {
		return arrears{}
	}
	return d
}

// over returns the time at which the arrears end.
func (d arrears) over() int64 { return max(d.gone, d.later.gone) }

// raise makes the arrears at least the given units until gone.
func (d *arrears) raise(units, gone int64) {
	switch {
	case units >= d.units && gone >= d.over():
		*d = arrears{units: units, gone: gone}
	case units >= d.units:
		d.units, d.gone = units, max(gone, d.gone)
	case gone > d.gone:
		d.later.units, d.later.gone = max(units, d.later.units), max(gone, d.later.gone)
	}
}

// recordEviction records the eviction of the record at position i, in favor of a record of the given size.
func (l *Ledger[O]) recordEviction(set *ledgerSet, i int, size uint8, now int64) {
	r, owed := &set.records[i], l.overflow(set).made[size%sizeClasses]
	if e := l.line(set, i); e != nil {
		l.lose(set.rules[i], int(e.group), r.expires)
		l.clearLine(set, i)
	}
	o := l.overflows[set.index]
	if units := r.total(); r.expires > now && units > 0 {
		if o == nil {
			o = new(overflow)
			l.overflows[set.index] = o
		}
		made := &o.made[r.size%sizeClasses]
		*made = made.at(now)
		if d := o.owed[i].at(now); d.units > 0 {
			made.raise(units+d.units, d.gone)
			made.raise(units+d.later.units, max(d.gone, d.later.gone))
		}
		made.raise(units, r.expires)
	}
	l.owe(set, i, owed)
}

// noOverflow is the overflow of all sets that have evicted nothing. It does not change.
var noOverflow overflow

// overflow returns the overflow of a set, to be read only.
func (l *Ledger[O]) overflow(set *ledgerSet) *overflow {
	if o := l.overflows[set.index]; o != nil {
		return o
	}
	return &noOverflow
}

// owe sets the arrears of the key of the record at position i.
func (l *Ledger[O]) owe(set *ledgerSet, i int, d arrears) {
	if o := l.overflows[set.index]; o != nil {
		o.owed[i] = d
	}
}
