package livepage

import (
	"cmp"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// tracked is the number of keys whose decisions hottest counts, at 700 bytes per key at most.
	tracked = 512
	// shownHottest is the number of keys that are shown.
	shownHottest = 20
	// halfLife is the time in which the weight of past decisions halves.
	halfLife = 10 * time.Second
	// enough is the largest number of decisions per second in the sample. Beyond it, the sample is thinned.
	enough = 2_000
)

// hottest finds the keys that ask most often, in bounded memory and time. It uses the Space-Saving
// sketch (Metwally, Agrawal, El Abbadi: Efficient computation of frequent and top-k elements in data
// streams, 2005) over a sample of the decisions. The busier the limiter, the smaller the sampled part,
// so that the lock is taken no more than a few thousand times a second. Counts halve every 10 seconds,
// and so does the time by which they are divided to get a rate. hottest is safe for concurrent use.
type hottest struct {
	name func(key string) shownKey // the form in which a key is kept
	seed maphash.Seed

	// every is the number of decisions for which one decision of the sample stands, a power of two.
	every atomic.Uint64

	mu      sync.Mutex // guards the fields below
	entries []*entry
	where   map[uint64]*entry
	now     func() time.Time
	halved  time.Time // when counts were last halved
	weight  float64   // the time that the counts covered then, in seconds, weighted like the counts
	second  time.Time // when the current second of the sample began
	taken   int       // decisions in the sample since then
}

// entry counts the decisions of one rule and key.
type entry struct {
	hash   uint64
	rule   string
	key    shownKey
	count  float64 // at least the true number of decisions, and too large by at most over
	over   float64
	denied float64 // denials among the decisions that were counted for this key
}

// hot is a rule and a key with their decisions per second.
type hot struct {
	Rule      string
	Key       shownKey
	PerSecond float64
	Denied    float64 // the part of the decisions that were denials
}

func newHottest(name func(string) shownKey, now func() time.Time) *hottest {
	h := &hottest{name: name, seed: maphash.MakeSeed(), where: make(map[uint64]*entry, tracked), now: now, halved: now(), second: now()}
	h.every.Store(1)
	return h
}

// watch is called after each decision. A decision outside of the sample costs a random number.
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
}

// take returns an entry for a new key. Without room for a new one, it reuses the entry with the lowest
// count, and keeps that count, because the key may have had as many decisions.
func (h *hottest) take(hash uint64, rule, key string) *entry {
	if len(h.entries) < tracked {
		e := &entry{hash: hash, rule: rule, key: h.name(key)}
		h.where[hash] = e
		h.entries = append(h.entries, e)
		return e
	}
	e := h.entries[0]
	for _, other := range h.entries {
		if other.count < e.count {
			e = other
		}
	}
	delete(h.where, e.hash)
	e.hash, e.rule, e.key, e.over, e.denied = hash, rule, h.name(key), e.count, 0
	h.where[hash] = e
	return e
}

// adapt keeps the sample at about enough decisions per second.
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

// forget halves all counts once for each halfLife that has passed.
func (h *hottest) forget(now time.Time) {
	for ; now.Sub(h.halved) >= halfLife; h.halved = h.halved.Add(halfLife) {
		h.weight = (h.weight + halfLife.Seconds()) / 2
		if now.Sub(h.halved) > 64*halfLife { // nothing is left of the counts
			h.entries, h.where, h.weight, h.halved = nil, make(map[uint64]*entry, tracked), 0, now
			return
		}
		for _, e := range h.entries {
			e.count, e.over, e.denied = e.count/2, e.over/2, e.denied/2
		}
	}
}

// top returns the hottest keys, the hottest first. It includes only keys of whose count at least half
// is certain.
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
