package remote

import (
	"slices"

	"github.com/tierlimit/tierlimit/lua"
)

// batch combines the calls of one trip. It coalesces calls of the same rule, key and cost into one entry with a
// count, and puts entries of the same rule and key side by side, which costs Redis little more than a single
// entry. The results are as if the calls had been made one by one. Their order may be chosen, because all of
// them are in flight at the same time. Calls of a key keep the order of their arrival, with one exception:
// calls of the same cost, and holds of the same life, are served together with the first of them.
//
// Releases of held units and settlements of holds come first, so that other calls find the units that they
// free. Those of one key form one entry. If the key has other entries, too, these follow directly, so that its
// state is read once.
type batch struct {
	entries []Entry // in the order in which they are sent; empty until finish

	runs   []entryRun              // the same entries, in the order in which they were added
	first  []int32                 // the first run of releases and settlements of each key
	loads  []keyLoad               // one per key
	loadOf map[entryIdentity]int32 // positions in loads; unused while there is only one, because most batches are small
	// groups says that the batch has groups. A group's entries and other entries of the same keys then keep
	// their order.
	groups bool
	work   int64 // units that the script writes one by one
	mixed  int   // holds that share an entry with a hold of another cost

	spare [][]joinedHold // lists of joined holds of earlier trips, for reuse
}

// keyLoad describes what a batch carries for one key.
type keyLoad struct {
	of   entryIdentity
	last int32 // the last run, or noRun
	runs int   // the number of its entries, those of groups included
	work int64
}

const (
	noRun = -1
	// maxTries is the number of runs of a key that a call tries to join. It is small because calls
	// for a key usually have few different costs.
	maxTries = 8
	// maxMixed is the number of holds in a batch that may have another cost than the one before them in the
	// same entry. If not all holds of such an entry fit, each of them takes Redis as long as an entry.
	maxMixed = 256
	// maxSpare is the number of lists of joined holds that a batch keeps for reuse.
	maxSpare = 8
)

// bounds limits the size of a batch.
type bounds struct {
	entries int
	work    int64 // units that the script writes one by one
	// keysEntries and keysWork limit the part of each key. They do not apply to the first call of a key.
	keysEntries int
	keysWork    int64
	// spread is the largest difference, in µs, between the deadlines of calls that share an entry.
	spread int64
}

const (
	// keyPart is the part of a batch that the calls of one key may take while calls of other
	// keys wait (law 7): an eighth, but at least leastPerKey entries.
	keyPart     = 8
	leastPerKey = 4
)

// newBounds returns bounds that allow one key to fill the batch.
func newBounds(entries int, work, spread int64) *bounds {
	return &bounds{entries: entries, work: work, keysEntries: entries, keysWork: work, spread: spread}
}

// fairly returns bounds that leave room for other keys. waiting is the number of entries that wait.
func (b bounds) fairly(waiting int) *bounds {
	if waiting > b.entries { // otherwise there is room for all of them
		b.keysEntries = max(leastPerKey, b.entries/keyPart)
	}
	b.keysWork = b.work / keyPart
	return &b
}

// entryRun is an entry that further calls may join.
type entryRun struct {
	entry    Entry
	deadline int64 // the earliest deadline of its calls
	latest   int64 // the latest deadline of its calls
	head     int32 // the first of the runs with the same identity or of the same group, which are put side by side
	next     int32 // the next of them, or 0
	at       int32 // its position in entries; noRun until it is appended to them
}

// entryIdentity identifies calls that are put side by side.
type entryIdentity struct {
	rule  *Rule
	key   string
	first bool // set for releases and settlements, which are moved to the front of the batch
}

func identityOf(e *Entry) entryIdentity {
	return entryIdentity{e.Rule, e.Key, e.releases() || e.settlesHold()}
}

// releases reports whether the entry releases units of a concurrency limit.
func (e *Entry) releases() bool { return e.Operation == lua.Refund && e.Rule.slots }

// join coalesces another entry of the same rule and key into this one, if possible. The other's part begins at
// this one's count, for a release at its number of units.
func (e *Entry) join(other *Entry) (joined bool) {
	switch {
	case e.releases() && other.releases():
		e.Cost += other.Cost
		return true
	case e.Operation == lua.Take && other.Operation == lua.Take && e.Cost == other.Cost && e.count()+other.count() <= lua.MaxCount:
		e.Count = e.count() + other.count()
		return true
	}
	return e.joinHold(other)
}

func (b *batch) reset() {
	for i := range b.runs {
		if joined := b.runs[i].entry.joined; joined != nil && len(b.spare) < maxSpare {
			b.spare = append(b.spare, joined[:0])
		}
	}
	clear(b.entries) // let go of the keys
	clear(b.runs)
	clear(b.loads)
	clear(b.loadOf)
	b.entries, b.runs, b.first, b.loads = b.entries[:0], b.runs[:0], b.first[:0], b.loads[:0]
	b.groups, b.work, b.mixed = false, 0, 0
}

// outcome is the result of adding a call to a batch.
type outcome int

const (
	added    outcome = iota
	full             // the batch has no room for the call
	keysFull         // the key has used up its part of the batch; calls of other keys may fit
)

// add adds a call, unless the batch would then exceed its bounds. The first call always fits.
func (b *batch) add(c *call, bound *bounds) outcome {
	if c.group != nil {
		return b.addGroup(c, bound)
	}
	who := identityOf(&c.entry)
	l := b.loadFor(who)
	work := c.work
	if l != nil && b.addsNoWork(l, &c.entry) {
		work = 0
	}
	switch {
	case len(b.runs) > 0 && b.work+work > bound.work:
		return full
	case l != nil && l.work+work > bound.keysWork:
		return keysFull
	case l != nil && b.joins(l, c, bound):
		b.work, l.work = b.work+work, l.work+work
		return added
	case l != nil && l.runs >= bound.keysEntries:
		return keysFull
	case len(b.runs) >= bound.entries:
		return full
	}
	if l == nil {
		l = b.addLoad(who)
	}
	c.run, c.place, c.before = b.append(&c.entry, c.deadline), 0, 0
	if l.last != noRun {
		b.runs[l.last].next, b.runs[c.run].head = c.run, b.runs[l.last].head
	} else if who.first {
		b.first = append(b.first, c.run)
	}
	l.last, l.runs = c.run, l.runs+1
	b.work, l.work = b.work+work, l.work+work
	return added
}

// addsNoWork reports whether a call is a settlement that would join two or more others of its key. The log is
// written at most twice for all of them: once for the units given back, and once for the units charged in
// addition. The first two settlements account for that.
func (b *batch) addsNoWork(l *keyLoad, e *Entry) bool {
	if l.last == noRun || !e.settlesHold() {
		return false
	}
	n := b.runs[l.last].entry.count()
	return n > 1 && n < lua.MaxHolds
}

// joins joins a call to a run of its key, if possible. It tries the last run, which nearly always fits. If the
// key may have further runs, it also tries the first ones.
func (b *batch) joins(l *keyLoad, c *call, bound *bounds) bool {
	tries := 1
	if l.runs < bound.keysEntries {
		tries = maxTries
	}
	for at := l.last; at != noRun && tries > 0; tries-- {
		run := &b.runs[at]
		earliest, latest := min(run.deadline, c.deadline), max(run.latest, c.deadline)
		mixes := run.entry.mixes(&c.entry)
		if (latest-earliest <= bound.spread || c.entry.settlesHold()) && (!mixes || b.mixed < maxMixed) {
			if n := len(b.spare); n > 0 && run.entry.Hold != nil && run.entry.joined == nil {
				run.entry.joined, b.spare = b.spare[n-1], b.spare[:n-1]
			}
			place, before := run.entry.count(), run.entry.Cost
			if run.entry.join(&c.entry) {
				c.run, c.place, c.before = at, int32(place), before
				run.deadline, run.latest = earliest, latest
				if mixes {
					b.mixed++
				}
				return true
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
	return false
}

// loadFor returns what the batch carries for a key, or nil.
func (b *batch) loadFor(who entryIdentity) *keyLoad {
	if len(b.loads) == 1 && b.loads[0].of == who {
		return &b.loads[0]
	}
	if at, known := b.loadOf[who]; known {
		return &b.loads[at]
	}
	return nil
}

func (b *batch) addLoad(who entryIdentity) *keyLoad {
	at := len(b.loads)
	b.loads = append(b.loads, keyLoad{of: who, last: noRun})
	if at == 1 {
		if b.loadOf == nil {
			b.loadOf = make(map[entryIdentity]int32)
		}
		b.loadOf[b.loads[0].of] = 0
	}
	if at > 0 {
		b.loadOf[who] = int32(at)
	}
	return &b.loads[at]
}

// addGroup adds the entries of a group. They stay together, and in order with other entries of their keys.
func (b *batch) addGroup(c *call, bound *bounds) outcome {
	work := c.work
	if len(b.runs) > 0 && (len(b.runs)+len(c.group) > bound.entries || b.work+work > bound.work) {
		return full
	}
	// While the whole batch is smaller than one key's part, no key has exceeded its part.
	if (len(b.runs) >= bound.keysEntries || b.work+work > bound.keysWork) && b.areFull(c.group, bound) {
		return keysFull
	}
	b.work += work
	b.groups = true           // later entries are not put before the group
	number := len(b.runs) + 1 // distinguishes the group from the groups of other calls
	for i := range c.group {
		e := &c.group[i]
		l := b.loadFor(entryIdentity{rule: e.Rule, key: e.Key})
		if l == nil {
			l = b.addLoad(entryIdentity{rule: e.Rule, key: e.Key})
		}
		l.last, l.runs, l.work = noRun, l.runs+1, l.work+e.work()
		run := b.append(e, c.deadline)
		if e.Group != 0 {
			b.runs[run].entry.Group = number
		}
		if i == 0 {
			c.run = run
		} else {
			b.runs[run-1].next, b.runs[run].head = run, c.run
		}
	}
	return added
}

// areFull reports whether every key of a group has used up its part of the batch. If some key has not, the group
// is not held back: its full keys may be limits that all requests share.
func (b *batch) areFull(group []Entry, bound *bounds) bool {
	for i := range group {
		l := b.loadFor(entryIdentity{rule: group[i].Rule, key: group[i].Key})
		if l == nil || l.runs < bound.keysEntries && l.work+group[i].work() <= bound.keysWork {
			return false
		}
	}
	return true
}

func (b *batch) append(e *Entry, deadline int64) int32 {
	at := int32(len(b.runs))
	b.runs = slices.Grow(b.runs, 1)[:at+1] // reset has cleared it
	run := &b.runs[at]
	run.entry, run.deadline, run.latest, run.head, run.at = *e, deadline, deadline, at, noRun
	return at
}

// finish puts the entries in their final order.
func (b *batch) finish() {
	for _, at := range b.first {
		b.appendRuns(at)
		e := &b.runs[at].entry
		if others := b.loadFor(entryIdentity{rule: e.Rule, key: e.Key}); others != nil && !b.groups {
			b.appendRuns(b.runs[others.last].head)
		}
	}
	for at := range b.runs {
		if run := &b.runs[at]; run.head == int32(at) && run.at == noRun {
			b.appendRuns(int32(at))
		}
	}
}

// appendRuns appends the runs of a key to the entries, beginning with the head.
func (b *batch) appendRuns(at int32) {
	for {
		run := &b.runs[at]
		run.at = int32(len(b.entries))
		b.entries = append(b.entries, run.entry)
		if at = run.next; at == 0 { // run 0 is the first, and so never the next of another
			return
		}
	}
}

// answer returns the replies to a call. The call may share them with others; see Reply.partOf.
func (b *batch) answer(c *call, replies []Reply) []Reply {
	at := int(b.runs[c.run].at)
	if apart := replies[at].each(); apart != nil {
		return apart[c.place : c.place+1]
	}
	return replies[at : at+max(1, len(c.group))]
}

// subtract takes the units that were granted to a call off the replies that it shares.
func (b *batch) subtract(c *call, replies []Reply) {
	at := int(b.runs[c.run].at)
	for i := range c.group {
		replies[at+i].Granted = 0
	}
	if apart := replies[at].each(); apart != nil {
		apart[c.place].Granted = 0
	} else if c.group == nil && !c.entry.releases() { // a release's units are divided by position, see partOf
		replies[at].Granted -= replies[at].partOf(c).Granted
	}
}
