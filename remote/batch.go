package remote

import "github.com/tierlimit/tierlimit/lua"

// batch puts calls together for one trip. Calls of the same rule, key and cost become
// one entry with a count, and entries of the same rule and key stand side by side:
// that costs Redis little more than one of them. It is served as if all had come one
// by one, those of the same rule and key in the order of their arrival. (Those of
// different keys are all under way at the same time: their order is free.)
type batch struct {
	entries []Entry

	runs  []entryRun
	heads []int32          // the first run of each key, in order of arrival
	last  map[asking]int32 // the last run of each key
	alone bool             // there is one run, and it is not in last yet: most batches are small
	work  int64            // units that the script writes one by one
}

// entryRun is an entry in the making.
type entryRun struct {
	entry    Entry
	deadline int64 // of the first call
	next     int32 // the next run of the same key, or 0
	at       int32 // position in entries
}

// asking is what calls must have in common to be put side by side.
type asking struct {
	rule *Rule
	key  string
}

func (b *batch) reset() {
	clear(b.entries) // let go of the keys
	clear(b.runs)
	clear(b.last)
	b.entries, b.runs, b.heads, b.alone, b.work = b.entries[:0], b.runs[:0], b.heads[:0], false, 0
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
	who := asking{c.entry.Rule, c.entry.Key}
	if b.alone {
		first := &b.runs[0].entry
		b.alone = false
		b.put(asking{first.Rule, first.Key}, 0)
	}
	last, known := b.last[who]
	if known {
		run := &b.runs[last]
		later := c.deadline - run.deadline
		if run.entry.operation() == lua.Take && c.entry.operation() == lua.Take && run.entry.Cost == c.entry.Cost &&
			later >= 0 && later <= spread && run.entry.count()+c.entry.count() <= lua.MaxCount {
			c.run, c.place = last, run.entry.count()
			run.entry.Count = c.place + c.entry.count()
			b.work += work
			return true
		}
	}
	if len(b.runs) >= most {
		return false
	}
	c.run, c.place = b.append(c.entry, c.deadline), 0
	b.work += work
	if known {
		b.runs[last].next = c.run
	} else {
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
	b.alone = false            // what follows a group does not go in line before it
	number := len(b.heads) + 1 // tells the group from those of other calls
	for i := range c.group {
		e := c.group[i]
		delete(b.last, asking{e.Rule, e.Key})
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
	b.runs = append(b.runs, entryRun{entry: e, deadline: deadline})
	return int32(len(b.runs) - 1)
}

// finish puts the entries in their order. notAfter says when an entry must no longer
// be charged.
func (b *batch) finish(notAfter func(e *Entry, deadline int64) int64) {
	for _, at := range b.heads {
		for {
			run := &b.runs[at]
			run.entry.NotAfter = notAfter(&run.entry, run.deadline)
			run.at = int32(len(b.entries))
			b.entries = append(b.entries, run.entry)
			if at = run.next; at == 0 { // no run comes before itself
				break
			}
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
	if c.group == nil {
		replies[at].Granted -= replies[at].share(&c.entry, c.place).Granted
	}
}
