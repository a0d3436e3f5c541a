// Package simulate sends recorded or synthetic requests through the plain models of the algorithms, and compares the
// decisions with those of the textbook's exact log. No Redis is involved; the scripts in Redis are tested against
// the same models.
package simulate

import (
	"cmp"
	"slices"
	"time"
)

// Traffic is a list of requests of one unit each, for any number of keys. Make it with [New]. It is immutable and
// safe for concurrent use.
type Traffic struct {
	at     []int64   // µs since the epoch, ascending
	key    []int32   // of each request, as a position in names
	names  []string  // of the keys
	groups [][]int32 // the requests of each key, in order
}

// New makes a Traffic. each is called once and must yield every request: its time, in µs since the epoch, and its
// key. Requests of the same time keep their order.
func New(each func(yield func(at int64, key string) bool)) *Traffic {
	t := &Traffic{}
	known := make(map[string]int32)
	for at, key := range each {
		number, ok := known[key]
		if !ok {
			number = int32(len(t.names))
			known[key] = number
			t.names = append(t.names, key)
		}
		t.at = append(t.at, at)
		t.key = append(t.key, number)
	}
	t.sort()
	t.groups = make([][]int32, len(t.names))
	for i, k := range t.key {
		t.groups[k] = append(t.groups[k], int32(i))
	}
	return t
}

func (t *Traffic) sort() {
	if slices.IsSorted(t.at) {
		return
	}
	order := make([]int32, len(t.at))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(t.at[a], t.at[b]) })
	at, key := make([]int64, len(order)), make([]int32, len(order))
	for i, from := range order {
		at[i], key[i] = t.at[from], t.key[from]
	}
	t.at, t.key = at, key
}

// Requests returns the number of requests.
func (t *Traffic) Requests() int { return len(t.at) }

// Keys returns the number of different keys.
func (t *Traffic) Keys() int { return len(t.names) }

// Name returns the name of a key, given its number, 0 to Keys()-1.
func (t *Traffic) Name(key int) string { return t.names[key] }

// Of returns the requests of a key, given its number, in order.
func (t *Traffic) Of(key int) []int32 { return t.groups[key] }

// KeyOf returns the number of a request's key.
func (t *Traffic) KeyOf(request int32) int { return int(t.key[request]) }

// At returns the time of a request, in µs since the epoch.
func (t *Traffic) At(request int32) int64 { return t.at[request] }

// Span returns the times of the first and the last request.
func (t *Traffic) Span() (first, last time.Time) {
	if len(t.at) == 0 {
		return time.Time{}, time.Time{}
	}
	return time.UnixMicro(t.at[0]).UTC(), time.UnixMicro(t.at[len(t.at)-1]).UTC()
}

// part returns in which of n equal parts of the whole span a request lies.
func (t *Traffic) part(request int32, n int) int {
	first := t.at[0]
	span := t.at[len(t.at)-1] - first + 1
	// Over centuries, the quotient of the last request is rounded to 1.
	return min(n-1, int(float64(t.at[request]-first)/float64(span)*float64(n)))
}
