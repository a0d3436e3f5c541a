package httplimit

import (
	"hash/maphash"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tierlimit/tierlimit/limit"
)

// maxHolds is the number of upstreams whose Retry-After is remembered at a time.
const maxHolds = 1024

// upstream is a host together with the key under which it is called. An answer that the host gave under
// one tenant's key does not affect another tenant's quota (law 7).
type upstream struct{ host, key string }

// holds has the upstreams that asked for a pause (Retry-After), and the end of each pause. It stores
// hashes with a random seed instead of the upstreams, because a key may have 64 kB (law 7). A collision
// is too unlikely to matter.
type holds struct {
	longest time.Duration
	seed    maphash.Seed

	mu    sync.Mutex // guards until
	until map[uint64]time.Time
}

func newHolds(longest time.Duration) holds {
	return holds{longest: longest, seed: maphash.MakeSeed(), until: make(map[uint64]time.Time)}
}

// hold stops requests to an upstream for d, but at most for h.longest. It never shortens a hold,
// because this answer may be older than the last one received.
func (h *holds) hold(u upstream, d time.Duration) {
	if d = min(d, h.longest); d <= 0 {
		return
	}
	now := time.Now()
	end, hash := now.Add(d), maphash.Comparable(h.seed, u)
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, known := h.until[hash]; !known && len(h.until) >= maxHolds {
		h.makeRoom(now)
	}
	if end.After(h.until[hash]) {
		h.until[hash] = end
	}
}

// makeRoom forgets the holds that are over or, if none is, the hold that ends first.
func (h *holds) makeRoom(now time.Time) {
	var first uint64
	var soonest time.Time // when first ends
	for hash, until := range h.until {
		if !until.After(now) {
			delete(h.until, hash)
		} else if soonest.IsZero() || until.Before(soonest) {
			first, soonest = hash, until
		}
	}
	if len(h.until) >= maxHolds {
		delete(h.until, first)
	}
}

// left returns how long an upstream must not be called, or 0 if it may be called now.
func (h *holds) left(u upstream) time.Duration {
	hash := maphash.Comparable(h.seed, u)
	h.mu.Lock()
	defer h.mu.Unlock()
	return max(0, time.Until(h.until[hash])) // far below 0 if there is no hold
}

// retryAfter reads the header field Retry-After: a number of seconds, or a date (RFC 9110, section
// 10.2.3). A date is measured from the response's Date, if there is one, which is on the upstream's own
// clock.
func retryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	text := strings.TrimSpace(h.Get(fieldRetryAfter))
	if text != "" && strings.Trim(text, "0123456789") == "" {
		const most = int64(limit.MaxWindow / time.Second) // avoids overflow
		n, _ := strconv.ParseInt(text, 10, 64)            // ParseInt returns the largest int64 for a larger number
		return time.Duration(min(n, most)) * time.Second, true
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0, false
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return at.Sub(now), true
}
