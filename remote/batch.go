package remote

import "github.com/tierlimit/tierlimit/lua"

// batch puts calls together for one trip. Calls of the same rule, key and cost become
// one entry with a count, and entries of the same rule and key stand side by side:
// that costs Redis little more than one of them. It is served as if all had come one
// by one, those of the same rule and key in the order of their arrival. (Those of
// different keys are all under way at the same time: their order is free.)
//
// Releases of units that are held, and settlements, come first, those of a key as one: all calls are
// under way at the same time, so they may come before whoever asks for units, who then finds more of
// them. Where a key has both, they stand before its other entries, so that its state is read once.
type batch struct {
	entries []Entry

	runs  []entryRun
	first []int32          // the first run of each key's releases and settlements
	heads []int32          // the first run of each key's others, in order of arrival
	last  map[asking]int32 // the last run of each key
	alone bool             // there is one run, and it is not in last yet: most batches are small
	// groups: some are among them, and their keys' other entries keep their order to them.
	groups bool
	work   int64 // units that the script writes one by one
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
	clear(b.entries) // let go of the keys
	clear(b.runs)
	clear(b.last)
	b.entries, b.runs, b.first, b.heads = b.entries[:0], b.runs[:0], b.first[:0], b.heads[:0]
	b.alone, b.groups, b.work = false, false, 0
}

// add adds a call, unless the batch then were larger than most entries, or the work
// they make; the first call always fits. spread is how far the deadlines of calls
// with a common entry may lie apart, in µs.
func (b *batch) add(c *call, most int, mostWork, spread int64) bool {
	if c.group != nil {
		return b.addGroup(c, most, mostWork)
	}
	work := c.entry.work()
	if len(b.runs) > 0 && b.work+work > mostWork {
		return false
	}
	who := askingOf(&c.entry)
	if b.alone {
		b.alone = false
		b.put(askingOf(&b.runs[0].entry), 0)
	}
	last, known := b.last[who]
	if known {
		run := &b.runs[last]
		later := c.deadline - run.deadline
		if (later >= 0 && later <= spread) || !c.entry.hasDeadline() {
			if place, joined := run.entry.join(&c.entry); joined {
				c.run, c.place = last, place
				b.work += work
				return true
			}
		}
	}
	if len(b.runs) >= most {
		return false
	}
	c.run, c.place = b.append(c.entry, c.deadline), 0
	b.work += work
	switch {
	case known:
		b.runs[last].next, b.runs[c.run].head = c.run, b.runs[last].head
	case who.first:
		b.first = append(b.first, c.run)
	default:
		b.heads = append(b.heads, c.run)
	}
	if b.alone = c.run == 0; !b.alone {
		b.put(who, c.run)
	}
	return true
}

func (b *batch) put(who asking, run int32) {
	if b.last == nil {
		b.last = make(map[asking]int32)
	}
	b.last[who] = run
}

// addGroup adds entries that must stay together, and in line with others of their
// keys.
func (b *batch) addGroup(c *call, most int, mostWork int64) bool {
	work := int64(0)
	for i := range c.group {
		work += c.group[i].work()
	}
	if len(b.runs) > 0 && (len(b.runs)+len(c.group) > most || b.work+work > mostWork) {
		return false
	}
	b.work += work
	b.alone, b.groups = false, true // what follows a group does not go in line before it
	number := len(b.heads) + 1      // tells the group from those of other calls
	for i := range c.group {
		e := c.group[i]
		delete(b.last, asking{rule: e.Rule, key: e.Key})
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
	return true
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
		if others, known := b.last[asking{rule: e.Rule, key: e.Key}]; known && !b.groups {
			b.line(b.runs[others].head, notAfter)
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
