package serve

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// leaving makes clients over HTTP go elsewhere when the service ends. Otherwise the end would close kept-alive
// connections while clients write their next requests, which would then get no answer. HTTP/1.1 can only tell clients
// with an answer, by the header "Connection: close".
type leaving struct {
	mu      sync.Mutex // guards the rest
	ending  bool
	waiting map[net.Conn]wait // connections that wait for a request
}

// wait says since when a connection waits for a request, and whether it is the connection's first.
type wait struct {
	since time.Time
	first bool
}

// A connection that has had no request for unusedFor is not expected to get another soon, and can be closed. A first
// request, and all of the leaving, may take until leaveWithin.
const (
	unusedFor   = 250 * time.Millisecond
	leaveWithin = time.Second
)

// of makes the clients of a server leave, too.
func (l *leaving) of(server *http.Server) {
	handler := server.Handler
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.mu.Lock()
		ending := l.ending
		l.mu.Unlock()
		if ending {
			w.Header().Set("Connection", "close")
		}
		handler.ServeHTTP(w, r)
	})
	server.ConnState = func(c net.Conn, state http.ConnState) {
		l.mu.Lock()
		defer l.mu.Unlock()
		switch state {
		case http.StateNew, http.StateIdle:
			if l.waiting == nil {
				l.waiting = make(map[net.Conn]wait)
			}
			l.waiting[c] = wait{since: time.Now(), first: state == http.StateNew}
		default:
			delete(l.waiting, c)
		}
	}
}

// end makes each answer the last one of its connection. It returns when no connection is expected to get a request
// soon, after leaveWithin at the latest. Connections that never had one are closed, because the end of an HTTP server
// would wait five seconds for them.
func (l *leaving) end() {
	l.mu.Lock()
	l.ending = true
	l.mu.Unlock()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for by := time.Now().Add(leaveWithin); l.isUsed() && time.Now().Before(by); {
		<-ticker.C
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for c, w := range l.waiting {
		if w.first && w.isUnused() {
			_ = c.Close()
		}
	}
}

// isUsed reports whether any connection is expected to get a request soon.
func (l *leaving) isUsed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.waiting {
		if !w.isUnused() {
			return true
		}
	}
	return false
}

func (w wait) isUnused() bool {
	if w.first {
		return time.Since(w.since) >= leaveWithin
	}
	return time.Since(w.since) >= unusedFor
}
