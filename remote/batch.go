package remote

import "github.com/tierlimit/tierlimit/lua"

// batch puts calls together for one trip. Calls of the same rule, key and cost become
// one entry with a count, and entries of the same rule and key stand side by side:
// that costs Redis little more than one of them. It is served as if all had come one
// by one. All are under way at the same time, so their order is free: those of a key come in
// the order of their arrival, but that each is served with the first of its cost.
//
// Releases of units that are held, and settlements, come first, those of a key as one: all calls are
// under way at the same time, so they may come before whoever asks for units, who then finds more of
// them. Where a key has both, they stand before its other entries, so that its state is read once.
type batch struct {
	entries []Entry

	runs   []entryRun
	first  []int32          // the first run of each key's releases and settlements
	heads  []int32          // the first run of each key's others, in order of arrival
	loads  []load           // of the keys
	loadOf map[asking]int32 // by key, the position in loads
	alone  bool             // there is one run, and its key is not in loadOf yet: most batches are small
	// groups: some are among them, and their keys' other entries keep their order to them.
	groups bool
	work   int64 // units that the script writes one by one

	spare [][]joinedHold // what runs of earlier trips had, to be used again
}

// load is what a batch carries of a key.
type load struct {
	last int32 // the last run, or noRun
	runs int   // groups' entries included
	work int64
}

const (
	noRun = -1
	// mostTries is how many runs of a key a call tries to join: callers ask for few costs.
	mostTries = 8
	// mostSpare is how many lists of joined holds a batch keeps for later trips.
	mostSpare = 8
)

// bounds are how large a batch may become.
type bounds struct {
	entries int
	work    int64 // units that the script writes one by one
	// What each key may have of them, but for its first call.
	keysEntries int
	keysWork    int64
	// spread is how far the deadlines of calls with a common entry may lie apart, in µs.
	spread int64
}

const (
	// keyPart is the part of a batch that the calls of one key may take while calls of other
	// keys wait (law 7): an eighth, but at least leastPerKey entries.
	keyPart     = 8
	leastPerKey = 4
)

// newBounds are the bounds of a batch that one key may fill.
func newBounds(entries int, work, spread int64) *bounds {
	return &bounds{entries: entries, work: work, keysEntries: entries, keysWork: work, spread: spread}
}

// fairly are bounds that leave room for other keys, when so many entries wait.
func (b bounds) fairly(waiting int) *bounds {
	if waiting > b.entries { // or else all find a place
		b.keysEntries = max(leastPerKey, b.entries/keyPart)
	}
	b.keysWork = b.work / keyPart
	return &b
}

// entryRun is an entry in the making.
type entryRun struct {
	entry    Entry
	deadline int64 // of the first call
	head     int32 // the first run of the same key, of those that may be put side by side
	next     int32 // the next one, or 0
	ordered  bool  // of a head: it has its place
	at       int32 // position in entries
}

// asking is what calls must have in common to be put side by side.
type asking struct {
	rule  *Rule
	key   string
	first bool // they come before others
}

func askingOf(e *Entry) asking { return asking{e.Rule, e.Key, e.comesFirst()} }

// comesFirst reports whether the entry may come before others of its key.
func (e *Entry) comesFirst() bool { return e.releases() || e.settlesHold() }

// releases reports whether the entry gives back units that are held at the same time.
func (e *Entry) releases() bool { return e.Operation == lua.Refund && e.Rule.slots }

// join makes one entry of this and another of its rule and key, if they can be. place is where the
// other's part of it begins: of a Take after so many of the count, of a release after so many units.
func (e *Entry) join(other *Entry) (place int64, joined bool) {
	switch {
	case e.releases() && other.releases():
		place = e.Cost
		e.Cost += other.Cost
		return place, true
	case e.operation() == lua.Take && other.operation() == lua.Take && e.Cost == other.Cost && e.count()+other.count() <= lua.MaxCount:
		place = e.count()
		e.Count = place + other.count()
		return place, true
	}
	return e.joinHold(other)
}

func (b *batch) reset() {
	for i := range b.runs {
		if joined := b.runs[i].entry.joined; joined != nil && len(b.spare) < mostSpare {
			b.spare = append(b.spare, joined[:0])
		}
	}
	clear(b.entries) // let go of the keys
	clear(b.runs)
	clear(b.loadOf)
	b.entries, b.runs, b.first, b.heads, b.loads = b.entries[:0], b.runs[:0], b.first[:0], b.heads[:0], b.loads[:0]
	b.alone, b.groups, b.work = false, false, 0
}

// outcome is what became of a call that was to be added to a batch.
type outcome int

const (
	added    outcome = iota
	full             // there is no room for it
	keysFull         // its key has its part already; calls of others may fit
)

// add adds a call, unless the batch then were larger than its bounds; the first call always fits.
func (b *batch) add(c *call, bound *bounds) outcome {
	if c.group != nil {
		return b.addGroup(c, bound)
	}
	who := askingOf(&c.entry)
	if b.alone {
		b.alone = false
		b.put(askingOf(&b.runs[0].entry), 0)
	}
	of, known := b.loadOf[who]
	work := c.work
	if known && b.addsNoWork(&b.loads[of], &c.entry) {
		work = 0
	}
	if len(b.runs) > 0 && b.work+work > bound.work {
		return full
	}
	if !known {
		of = int32(len(b.loads))
	} else if b.loads[of].work+work > bound.keysWork {
		return keysFull
	} else if at, place := b.joined(&b.loads[of], c, bound); at != noRun {
		c.run, c.place = at, place
		b.work += work
		b.loads[of].work += work
		return added
	} else if b.loads[of].runs >= bound.keysEntries {
		return keysFull
	}
	if len(b.runs) >= bound.entries {
		return full
	}
	c.run, c.place = b.append(c.entry, c.deadline), 0
	b.work += work
	if !known {
		b.loads = append(b.loads, load{last: noRun})
	}
	l := &b.loads[of]
	switch {
	case l.last != noRun:
		b.runs[l.last].next, b.runs[c.run].head = c.run, b.runs[l.last].head
	case who.first:
		b.first = append(b.first, c.run)
	default:
		b.heads = append(b.heads, c.run)
	}
	l.last, l.runs, l.work = c.run, l.runs+1, l.work+work
	if b.alone = c.run == 0; !b.alone && !known {
		b.put(who, of)
	}
	return added
}

// addsNoWork reports whether a call is a settlement that joins others of its key: what all of them give
// back, and what all are charged besides, is written once each, and so counted with the first two.
func (b *batch) addsNoWork(l *load, e *Entry) bool {
	if l.last == noRun || !e.settlesHold() {
		return false
	}
	n := b.runs[l.last].entry.count()
	return n > 1 && n < lua.MaxHolds
}

// joined joins a call to a run of its key, if it can be: to the last, as nearly always, or while the
// key may have more of them, to one of the first. It returns the run, or noRun, and the call's place
// in it.
func (b *batch) joined(l *load, c *call, bound *bounds) (at int32, place int64) {
	tries := 1
	if l.runs < bound.keysEntries {
		tries = mostTries
	}
	for at := l.last; at != noRun && tries > 0; tries-- {
		run := &b.runs[at]
		later := c.deadline - run.deadline
		if (later >= 0 && later <= bound.spread) || !c.entry.hasDeadline() {
			if n := len(b.spare); n > 0 && run.entry.Hold != nil && run.entry.joined == nil {
				run.entry.joined, b.spare = b.spare[n-1], b.spare[:n-1]
			}
			if place, joined := run.entry.join(&c.entry); joined {
				return at, place
			}
		}
		if at == l.last {
			at = run.head
		} else {
			at = run.next
		}
		if at == l.last {
			break
		}
	}
	return noRun, 0
}

func (b *batch) put(who asking, of int32) {
	if b.loadOf == nil {
		b.loadOf = make(map[asking]int32)
	}
	b.loadOf[who] = of
}

// addGroup adds entries that must stay together, and in line with others of their
// keys.
func (b *batch) addGroup(c *call, bound *bounds) outcome {
	work := c.work
	if len(b.runs) > 0 && (len(b.runs)+len(c.group) > bound.entries || b.work+work > bound.work) {
		return full
	}
	if b.alone {
		b.put(askingOf(&b.runs[0].entry), 0)
	}
	// No key has its part yet if all of the batch is no more than that.
	if (len(b.runs) >= bound.keysEntries || b.work+work > bound.keysWork) && b.areFull(c.group, bound) {
		return keysFull
	}
	b.work += work
	b.alone, b.groups = false, true // what follows a group does not go in line before it
	number := len(b.heads) + 1      // tells the group from those of other calls
	for i := range c.group {
		e := c.group[i]
		b.addMember(&e)
		if e.Group != 0 {
			e.Group = number
		}
		run := b.append(e, c.deadline)
		if i == 0 {
			c.run = run
			b.heads = append(b.heads, run)
		} else {
			b.runs[run-1].next = run
		}
	}
	return added
}

// areFull reports whether each of a group's keys has its part already. If one has not, it is another
// one's group: a limit that all requests share keeps none of them back.
func (b *batch) areFull(group []Entry, bound *bounds) bool {
	for i := range group {
		of, known := b.loadOf[asking{rule: group[i].Rule, key: group[i].Key}]
		if !known || b.loads[of].runs < bound.keysEntries && b.loads[of].work+group[i].work() <= bound.keysWork {
			return false
		}
	}
	return true
}

// addMember takes note of a group's entry.
func (b *batch) addMember(e *Entry) {
	who := asking{rule: e.Rule, key: e.Key}
	of, known := b.loadOf[who]
	if !known {
		of = int32(len(b.loads))
		b.loads = append(b.loads, load{})
		b.put(who, of)
	}
	l := &b.loads[of]
	l.last, l.runs, l.work = noRun, l.runs+1, l.work+e.work()
}

func (b *batch) append(e Entry, deadline int64) int32 {
	at := int32(len(b.runs))
	b.runs = append(b.runs, entryRun{entry: e, deadline: deadline, head: at})
	return at
}

// finish puts the entries in their order. notAfter says when an entry must no longer
// be charged.
func (b *batch) finish(notAfter func(e *Entry, deadline int64) int64) {
	for _, at := range b.first {
		b.line(at, notAfter)
		e := &b.runs[at].entry
		if others, known := b.loadOf[asking{rule: e.Rule, key: e.Key}]; known && !b.groups {
			b.line(b.runs[b.loads[others].last].head, notAfter)
		}
	}
	for _, at := range b.heads {
		if !b.runs[at].ordered {
			b.line(at, notAfter)
		}
	}
}

// line puts the entries of a key in their order.
func (b *batch) line(at int32, notAfter func(e *Entry, deadline int64) int64) {
	b.runs[at].ordered = true
	for {
		run := &b.runs[at]
		run.entry.NotAfter = notAfter(&run.entry, run.deadline)
		run.at = int32(len(b.entries))
		b.entries = append(b.entries, run.entry)
		if at = run.next; at == 0 { // no run comes before itself
			return
		}
	}
}

// answer is a call's part of the replies, see share.
func (b *batch) answer(c *call, replies []Reply) []Reply {
	at := int(b.runs[c.run].at)
	return replies[at : at+max(1, len(c.group))]
}

// disown takes what a call was granted out of the units that the replies tell of.
func (b *batch) disown(c *call, replies []Reply) {
	at := int(b.runs[c.run].at)
	for i := range c.group {
		replies[at+i].Granted = 0
	}
	if c.group == nil && !c.entry.releases() { // of which each has its part in what all released
		replies[at].Granted -= replies[at].share(&c.entry, c.place).Granted
	}
}
