package ledger

// overflow is what is known of the records of a set that made way while they had something in
// their windows. A key that comes without a record may have had one of them: if it were granted
// its share anew, whoever floods the table with keys would have as many shares as they like
// (law 11). So it starts with arrears, of as many units as any of those records had.
type overflow struct {
	made [sizeClasses]arrears // what keys without a record may owe, by the sizes of their records
	owed [ledgerWays]arrears  // of the records in the set
}

// sizeClasses is how many kinds of limits are told apart: what makes way under one is not owed
// under another.
const sizeClasses = 4

// arrears are the most units that a key may have been granted beside those on its record: so many at
// first, and after gone so many, until all have left their windows.
type arrears struct {
	units, gone int64
	later       struct{ units, gone int64 }
}

// at is what is left of them at a moment.
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

// over is when nothing is left of it.
func (d arrears) over() int64 { return max(d.gone, d.later.gone) }

// raise makes them at least so many units until then.
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

// makeWay takes note of the record at position i, which makes way for one of a size.
func (l *Ledger) makeWay(set *ledgerSet, i int, size uint8, now int64) {
	l.loseLine(set, i)
	r, owed := &set.records[i], l.owed(set, size)
	o := l.overflows[set.index]
	if units := r.total(); r.gone > now && units > 0 {
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
		made.raise(units, r.gone)
	}
	l.owe(set, i, owed)
}

// owed is what a key owes that has no record, which would be of this size.
func (l *Ledger) owed(set *ledgerSet, size uint8) arrears {
	if o := l.overflows[set.index]; o != nil {
		return o.made[size%sizeClasses]
	}
	return arrears{}
}

// owes is what the key of the record at position i owes.
func (l *Ledger) owes(set *ledgerSet, i int) arrears {
	if o := l.overflows[set.index]; o != nil {
		return o.owed[i]
	}
	return arrears{}
}

func (l *Ledger) owe(set *ledgerSet, i int, d arrears) {
	if o := l.overflows[set.index]; o != nil {
		o.owed[i] = d
	}
}
