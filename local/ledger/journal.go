package ledger

import (
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// journal has the units that were granted without Redis and have not been charged there. Each record with
// such units has a line beside it, under the same lock. [Ledger.Uncharged] takes lines out of the
// journal, to charge them.
type journal struct {
	lines  atomic.Int64
	units  atomic.Int64
	taking sync.Mutex // held while lines are taken out
	next   uint64     // next set to search; guarded by taking
}

// line has the units of a key by sub-window, as in its record. If the key's rule is changed, the line's
// owner is the one that was in force last. Units that Redis is charged with for that owner count in full
// under the new rule; units charged for the owner before may not (GCRA's debts depend on its rate). A
// line has only 128 bytes, because many keys may get a line at the same moment, and touching new memory
// then takes longer than anything else.
type line[O any] struct {
	owner  O
	key    string
	window time.Duration
	newest int64
	first  int64 // time before which none of the units were granted
	units  int64 // total; 0: the line is free
	group  int32
	counts [ledgerCounts]uint32
}

// Debt is units of a key that were granted without Redis, with the facts about the key from its
// [Account].
type Debt[O any] struct {
	Owner O
	Key   string
	Rule  uint8
	Group int // see GroupBy
	// Share is this instance's part of the limit, or 0 if the part was not fixed.
	Share float64
	Parts []Part // by time, oldest first

	hash       uint64
	window     time.Duration
	first      int64  // see line
	generation uint32 // generation of the ledger when the debt was taken out of the journal
}

// Part is a number of units that were granted about At.
type Part struct{ Units, At int64 }

// Waiting returns the number of units to be charged in Redis, and the number of their keys.
func (l *Ledger[O]) Waiting() (units, keys int64) {
	if l.journal.lines.Load() > 0 {
		l.settleCredits()
	}
	return l.journal.units.Load(), l.journal.lines.Load()
}

// Forgotten records that Redis has lost everything that was granted since the given time, for the keys of
// some groups. The units that this instance granted since then are charged again, once for each key,
// after the key's next use.
func (l *Ledger[O]) Forgotten(in func(group int) bool, since int64) {
	g := &l.groups
	g.mu.Lock()
	defer g.mu.Unlock()
	generation := l.generation.Load() + 1
	for group := range g.forgotten {
		if in(group) {
			g.forget(group, forgetting{generation, since})
		}
	}
	l.generation.Store(generation)
}

// Generation returns the generation of Redis's data: the number of data losses that [Ledger.Forgotten] has recorded.
func (l *Ledger[O]) Generation() uint32 { return l.generation.Load() }

// ChargeAgain puts the units of an account that Redis has lost into the journal, as the key's next use would. It
// reports whether these include units that were granted at a time, which were on record in the given generation. They
// do not if the key's record has been evicted.
func (l *Ledger[O]) ChargeAgain(a *Account[O], granted int64, generation uint32) bool {
	since, forgotten := l.groups.forgottenSince(l.groups.groupOf(a.Key), generation, l.generation.Load())
	length := subWindow(a.Window)
	if !forgotten || granted/length < firstForgotten(since, length) {
		return false
	}
	set, i := l.lock(a.Hash)
	defer set.mu.Unlock()
	if i < 0 {
		return false
	}
	l.journalLost(set, i, a)
	return true
}

// journalLost puts the units of a key that Redis has lost into the journal. It returns the generation of the
// ledger up to which it did so.
func (l *Ledger[O]) journalLost(set *ledgerSet, i int, a *Account[O]) (generation uint32) {
	r := &set.records[i]
	generation = l.generation.Load()
	behind := uint8(generation) - r.generation
	if behind == 0 {
		return generation
	}
	r.generation = uint8(generation)
	group := l.groups.groupOf(a.Key)
	since, forgotten := l.groups.forgottenSince(group, generation-uint32(behind), generation)
	if !forgotten {
		return generation
	}
	// While the line is rewritten, count another one, so that it never looks as if nothing were owed.
	l.countLines(group, 1)
	defer l.countLines(group, -1)
	length := subWindow(a.Window)
	newest := r.newest(length)
	var owed [ledgerCounts]int64 // by age
	e := l.line(set, i)
	for age := range owed {
		switch index := newest - int64(age); {
		case index >= firstForgotten(since, length): // lost units, which include those on the line
			owed[age] = r.count(index)
			if age == 0 {
				owed[age] += int64(r.rest)
			}
		case e != nil: // Redis has not been charged for these yet
			owed[age] = e.count(index)
		}
	}
	l.clearLine(set, i)
	for age, units := range owed {
		if units > 0 {
			l.journalAdd(set, i, a, 0, newest-int64(age), units) // the time within the sub-window is not known
		}
	}
	return generation
}

// journalAdd adds units of the record at position i to the journal. They were granted at the given time
// or later.
func (l *Ledger[O]) journalAdd(set *ledgerSet, i int, a *Account[O], at, index, units int64) {
	lines := l.lines[set.index]
	if lines == nil {
		lines = new([ledgerWays]*line[O])
		l.lines[set.index] = lines
	}
	e := lines[i]
	if e == nil {
		e = new(line[O])
		lines[i] = e
	}
	if l.lineAt(set, i, index) == nil {
		*e = line[O]{key: strings.Clone(a.Key), group: int32(l.groups.groupOf(a.Key)), window: a.Window, newest: index, first: at}
		l.countLines(int(e.group), 1)
	}
	e.owner = a.Owner
	l.journalMore(e, index, units)
}

// journalMore adds more units to a line, of its newest sub-window or of an earlier one.
func (l *Ledger[O]) journalMore(e *line[O], index, units int64) {
	was := e.units
	e.add(index, units)
	l.journal.units.Add(e.units - was)
}

// drop takes units off a line, which have been subtracted from its counts. A line without units is free, and
// keeps nothing of its key.
func (l *Ledger[O]) drop(e *line[O], units int64) {
	e.units -= units
	l.journal.units.Add(-units)
	if e.units == 0 {
		l.countLines(int(e.group), -1)
		*e = line[O]{}
	}
}

// journalRemove takes up to n units of sub-window index out of a line, and returns how many it took.
// newest is the newest sub-window of the line's record.
func (l *Ledger[O]) journalRemove(set *ledgerSet, i int, newest, index, n int64) (removed int64) {
	e := l.lineAt(set, i, newest)
	if e == nil {
		return 0
	}
	count := &e.counts[index%ledgerCounts]
	removed = min(n, int64(*count))
	*count -= uint32(removed)
	l.drop(e, removed)
	return removed
}

// line returns the line of the record at position i, or nil if it has none.
func (l *Ledger[O]) line(set *ledgerSet, i int) *line[O] {
	if lines := l.lines[set.index]; lines != nil && lines[i] != nil && lines[i].units > 0 {
		return lines[i]
	}
	return nil
}

// lineAt does the same as line, but first drops the units that have left the window when index is the
// newest sub-window.
func (l *Ledger[O]) lineAt(set *ledgerSet, i int, index int64) *line[O] {
	if e := l.line(set, i); e != nil {
		l.drop(e, e.advance(index))
	}
	return l.line(set, i)
}

func (l *Ledger[O]) clearLine(set *ledgerSet, i int) {
	if e := l.line(set, i); e != nil {
		l.drop(e, e.units)
	}
}

func (l *Ledger[O]) countLines(group int, n int64) {
	l.journal.lines.Add(n)
	l.groups.lines[group].Add(n)
}

// Uncharged takes the units of up to most keys of some groups out of the journal, so that they can be
// charged in Redis now. Each call continues where the last one ended. If matters is not nil, units of keys for which it
// returns false stay in the journal. When Uncharged returns nothing, no units are left except for those.
func (l *Ledger[O]) Uncharged(in func(group int) bool, most int, now int64, matters func(owner O, units int64) bool) []Debt[O] {
	l.journal.taking.Lock()
	defer l.journal.taking.Unlock()
	var debts []Debt[O]
	waiting := l.WaitingIn(in)
	for range l.sets {
		if len(debts) >= most || int64(len(debts)) >= waiting {
			break
		}
		set := &l.sets[l.journal.next%uint64(len(l.sets))]
		if debts = l.unchargedOf(set, in, debts, most, now, matters); len(debts) < most {
			l.journal.next++
		}
	}
	return debts
}

// Remaining returns what is left of a debt that was taken out of the journal earlier, without the units
// that Redis has lost since then. Those units are put into the journal again; see [Ledger.Forgotten].
func (l *Ledger[O]) Remaining(d Debt[O]) Debt[O] {
	generation := l.generation.Load()
	since, forgotten := l.groups.forgottenSince(d.Group, d.generation, generation)
	d.generation = generation
	if forgotten {
		first := firstForgotten(since, subWindow(d.window))
		d.Parts = slices.DeleteFunc(slices.Clone(d.Parts), func(p Part) bool { return p.At/subWindow(d.window) >= first })
	}
	return d
}

// PutBack returns a debt that was taken out of the journal, because Redis was certainly not charged for
// it. If the key's record has been evicted in the meantime, the debt is lost.
func (l *Ledger[O]) PutBack(d Debt[O]) {
	set, i := l.lock(d.hash)
	defer set.mu.Unlock()
	d = l.Remaining(d)
	length := subWindow(d.window)
	if i >= 0 {
		if e := l.line(set, i); e != nil {
			d.Owner = e.owner // the owner on the line is newer
		}
	}
	for _, p := range d.Parts {
		index := p.At / length
		if i < 0 {
			l.Lose(d, (index+ledgerCounts)*length)
		} else if index > set.records[i].newest(length)-ledgerCounts { // otherwise the units have left the window
			l.journalAdd(set, i, &Account[O]{Window: d.window, Owner: d.Owner, Key: d.Key}, d.first, index, p.Units)
			e := l.line(set, i)
			e.first = min(e.first, d.first)
		}
	}
}

// firstForgotten returns the index of the first sub-window with units that Redis has lost.
func firstForgotten(since, length int64) int64 { return max(0, since/length) }

func (l *Ledger[O]) unchargedOf(set *ledgerSet, in func(int) bool, debts []Debt[O], most int, now int64, matters func(O, int64) bool) []Debt[O] {
	l.lockSet(set)
	defer set.mu.Unlock()
	if l.lines[set.index] == nil {
		return debts
	}
	left := false
	for i := range set.records {
		e := l.line(set, i)
		if e == nil {
			continue
		}
		if !in(int(e.group)) || matters != nil && !matters(e.owner, e.units) {
			left = true
			continue
		}
		if len(debts) == most {
			return debts
		}
		r := &set.records[i]
		generation := l.journalLost(set, i, &Account[O]{Window: e.window, Owner: e.owner, Key: e.key})
		d := Debt[O]{
			Owner: e.owner, Key: e.key, Rule: set.rules[i], Group: int(e.group), Parts: e.parts(now),
			hash: r.hash, window: e.window, first: e.first, generation: generation,
		}
		if r.frozen && r.at != 0 {
			d.Share = float64(r.part) / wholePart
		}
		l.clearLine(set, i)
		if len(d.Parts) > 0 {
			debts = append(debts, d)
		}
	}
	if !left {
		l.lines[set.index] = nil
	}
	return debts
}

// advance clears the sub-windows that have left the window when index is the newest sub-window, and returns the
// number of their units.
func (e *line[O]) advance(index int64) (gone int64) {
	for i := max(e.newest, index-ledgerCounts) + 1; i <= index; i++ {
		gone += int64(e.counts[i%ledgerCounts])
		e.counts[i%ledgerCounts] = 0
	}
	e.newest = max(e.newest, index)
	return gone
}

// count returns the units of sub-window index.
func (e *line[O]) count(index int64) int64 {
	if index < 0 || index > e.newest || index <= e.newest-ledgerCounts {
		return 0
	}
	return int64(e.counts[index%ledgerCounts])
}

// add counts units, up to the capacity of a count. If one instance grants more units without Redis, fewer
// are charged.
func (e *line[O]) add(index, units int64) {
	count := &e.counts[index%ledgerCounts]
	units = min(units, math.MaxUint32-int64(*count))
	*count += uint32(units)
	e.units += units
}

// parts returns the units that still count. It dates the units of each sub-window at the middle of the
// time in which they can have been granted. In simulations this kept the fleet nearest to its limit. In a
// long window that time may be much shorter than the sub-window.
func (e *line[O]) parts(now int64) (parts []Part) {
	length := subWindow(e.window)
	for index := max(0, e.newest-ledgerBuckets); index <= e.newest; index++ {
		start := index * length
		end := min(start+length, max(now, start))
		from := min(max(start, e.first), end)
		at := from + (end-from)/2
		if units := int64(e.counts[index%ledgerCounts]); units > 0 && now-at < int64(e.window) {
			parts = append(parts, Part{Units: units, At: at})
		}
	}
	return parts
}
