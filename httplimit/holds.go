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

// upstream is a host as called under a key. Its answers under one tenant's key do not concern
// another's quota (law 7).
type upstream struct{ host, key string }

// holds has the upstreams that asked for a pause (Retry-After), and its end. It stores hashes with
// a random seed, because a key may have 64 kB (law 7); collisions are not to be expected.
type holds struct {
	longest time.Duration
	seed    maphash.Seed

	mu    sync.Mutex // guards until
	until map[uint64]time.Time
}

func newHolds(longest time.Duration) holds {
	return holds{longest: longest, seed: maphash.MakeSeed(), until: make(map[uint64]time.Time)}
}

// hold sends an upstream nothing for d, but at most for longest. It never shortens a hold, because
// an answer may be older than the last one received.
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

// makeRoom forgets holds that are over, or else the one that ends first.
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

// left returns for how long not to call an upstream, or 0 if it may be called.
func (h *holds) left(u upstream) time.Duration {
	hash := maphash.Comparable(h.seed, u)
	h.mu.Lock()
	defer h.mu.Unlock()
	left := time.Until(h.until[hash]) // far below 0 if there is no hold
	if left <= 0 {
		delete(h.until, hash)
	}
	return max(0, left)
}

// retryAfter reads the header field Retry-After: seconds, or a date (RFC 9110, section 10.2.3). A
// date is relative to the upstream's own clock if the response has a Date.
func retryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	text := strings.TrimSpace(h.Get(fieldRetryAfter))
	if text != "" && strings.Trim(text, "0123456789") == "" {
		const most = int64(limit.MaxWindow / time.Second) // keeps clear of overflow
		n, _ := strconv.ParseInt(text, 10, 64)            // the largest number, if it is larger
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
