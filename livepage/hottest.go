package livepage

import (
	"cmp"
	"container/heap"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// tracked is how many keys hottest keeps counts of, at 700 bytes each at the
	// most.
	tracked = 512
	// shownHottest is how many of them are shown.
	shownHottest = 20
	// halfLife is how fast the past is forgotten.
	halfLife = 10 * time.Second
	// enough decisions within a second are a sample; more are not looked at.
	enough = 2_000
)

// hottest finds the keys that ask most often, in bounded memory and time: the
// Space-Saving sketch (Metwally, Agrawal, El Abbadi: Efficient computation of frequent
// and top-k elements in data streams, 2005) over a sample of the decisions. The busier
// the limiter, the smaller the sample, so that the lock is taken no more than a few
// thousand times a second. Counts halve every 10 seconds; what they are divided by for
// a rate halves with them. It is safe for concurrent use.
type hottest struct {
	name func(key string) shownKey // what is kept of a key
	seed maphash.Seed

	// every is how many decisions one of the sample stands for, a power of two.
	every atomic.Uint64

	mu      sync.Mutex // guards what follows
	entries entries
	where   map[uint64]*entry
	now     func() time.Time
	halved  time.Time // when counts were halved last
	weight  float64   // seconds that the counts are of, at that time
	second  time.Time // the sample of this second...
	taken   int       // ...has so many decisions
}

// entry is a rule and a key with the decisions they had.
type entry struct {
	hash    uint64
	rule    string
	key     shownKey
	count   float64 // at least the decisions it had, and at most by over too many
	over    float64
	denied  float64 // of those that were seen
	heapPos int
}

// hot is a rule and a key with its decisions per second.
type hot struct {
	Rule      string
	Key       shownKey
	PerSecond float64
	Denied    float64 // part of them
}

func newHottest(name func(string) shownKey, now func() time.Time) *hottest {
	h := &hottest{name: name, seed: maphash.MakeSeed(), where: make(map[uint64]*entry, tracked), now: now, halved: now(), second: now()}
	h.every.Store(1)
	return h
}

// watch is told of each decision. For those outside of the sample it costs a random
// number.
func (h *hottest) watch(rule, key string, denied bool) {
	every := h.every.Load()
	if every > 1 && rand.Uint64()&(every-1) != 0 {
		return
	}
	hash := maphash.String(h.seed, key) ^ maphash.String(h.seed, rule)*2
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now()
	h.forget(now)
	h.adapt(now)
	e := h.where[hash]
	if e == nil {
		e = h.take(hash, rule, key)
	}
	e.count += float64(every)
	if denied {
		e.denied += float64(every)
	}
	heap.Fix(&h.entries, e.heapPos)
}

// take makes an entry for a new key: while there is room from nothing, and then in
// place of the one with the lowest count, whose count it may have had.
func (h *hottest) take(hash uint64, rule, key string) *entry {
	if len(h.entries) < tracked {
		e := &entry{hash: hash, rule: rule, key: h.name(key)}
		h.where[hash] = e
		heap.Push(&h.entries, e)
		return e
	}
	e := h.entries[0]
	delete(h.where, e.hash)
	e.hash, e.rule, e.key, e.over, e.denied = hash, rule, h.name(key), e.count, 0
	h.where[hash] = e
	return e
}

// adapt keeps the sample at about enough decisions a second.
func (h *hottest) adapt(now time.Time) {
	h.taken++
	over := now.Sub(h.second) >= time.Second
	every := h.every.Load()
	switch {
	case h.taken > enough && every < 1<<30:
		h.every.Store(every * 2)
	case over && h.taken < enough/4 && every > 1:
		h.every.Store(every / 2)
	case !over:
		return
	}
	h.second, h.taken = now, 0
}

// forget halves all counts for each halfLife that has passed.
func (h *hottest) forget(now time.Time) {
	for ; now.Sub(h.halved) >= halfLife; h.halved = h.halved.Add(halfLife) {
		h.weight = (h.weight + halfLife.Seconds()) / 2
		if now.Sub(h.halved) > 64*halfLife { // nothing is left of it
			h.entries, h.where, h.weight, h.halved = nil, make(map[uint64]*entry, tracked), 0, now
			return
		}
		for _, e := range h.entries {
			e.count, e.over, e.denied = e.count/2, e.over/2, e.denied/2
		}
	}
}

// top is the hottest keys, the hottest first: those of which at least half of the
// count is certain.
func (h *hottest) top() []hot {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now()
	h.forget(now)
	seconds := max(1, h.weight+now.Sub(h.halved).Seconds())
	var top []hot
	for _, e := range h.entries {
		if certain := e.count - e.over; certain >= e.over && e.count/seconds >= 0.05 {
			top = append(top, hot{e.rule, e.key, e.count / seconds, e.denied / certain})
		}
	}
	slices.SortFunc(top, func(a, b hot) int { return cmp.Compare(b.PerSecond, a.PerSecond) })
	return top[:min(len(top), shownHottest)]
}

// entries is a heap with the lowest count on top.
type entries []*entry

func (e entries) Len() int           { return len(e) }
func (e entries) Less(i, j int) bool { return e[i].count < e[j].count }
func (e entries) Swap(i, j int) {
	e[i], e[j] = e[j], e[i]
	e[i].heapPos, e[j].heapPos = i, j
}
func (e *entries) Push(x any) {
	added := x.(*entry)
	added.heapPos = len(*e)
	*e = append(*e, added)
}
func (e *entries) Pop() any { panic("tierlimit: entries are replaced, never removed") }
