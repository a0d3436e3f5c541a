package httplimit

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tierlimit/tierlimit/limit"
)

// maxHolds is how many hosts are held back at once: who calls more than that may not
// keep away from all.
const maxHolds = 1024

// holds are the hosts that asked to be left alone, and until when.
type holds struct {
	longest time.Duration

	mu    sync.Mutex // guards until
	until map[string]time.Time
}

// hold keeps away from a host for d, or longest. It never shortens a hold: an answer
// may be older than the one that was heard of last.
func (h *holds) hold(host string, d time.Duration) {
	if d = min(d, h.longest); d <= 0 {
		return
	}
	now := time.Now()
	end := now.Add(d)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.until == nil {
		h.until = make(map[string]time.Time)
	}
	if _, known := h.until[host]; !known && len(h.until) >= maxHolds {
		h.makeRoom(now)
	}
	if end.After(h.until[host]) {
		h.until[host] = end
	}
}

// makeRoom forgets holds that are over, or else the one that is over first.
func (h *holds) makeRoom(now time.Time) {
	var first string
	for host, until := range h.until {
		if !until.After(now) {
			delete(h.until, host)
		} else if first == "" || until.Before(h.until[first]) {
			first = host
		}
	}
	if len(h.until) >= maxHolds {
		delete(h.until, first)
	}
}

// left is for how long to keep away from a host; 0 if it may be called.
func (h *holds) left(host string) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	until, known := h.until[host]
	if !known {
		return 0
	}
	left := time.Until(until)
	if left <= 0 {
		delete(h.until, host)
		return 0
	}
	return left
}

// retryAfter reads the header field Retry-After: seconds, or a date (RFC 9110, section
// 10.2.3). A date is taken by the upstream's own clock if it says what that shows.
func retryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	text := strings.TrimSpace(h.Get(fieldRetryAfter))
	if text != "" && strings.Trim(text, "0123456789") == "" {
		const most = int64(limit.MaxWindow / time.Second) // keeps clear of overflow
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			n = most
		}
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
