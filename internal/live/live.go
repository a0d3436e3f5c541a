// Package live serves pages that keep themselves up to date. The server renders parts of the page again
// and again and sends them as server-sent events. A small script replaces the parts that have changed.
// Without the script, the page stays as it was when it was loaded.
package live

import (
	"bytes"
	_ "embed" // for script and style
	"io"
	"net/http"
	"path"
	"time"
)

var (
	//go:embed live.js
	script []byte
	//go:embed live.css
	style []byte
)

// patience is how long a client may take to read an event. The server closes the connection of a slower
// client.
const patience = 5 * time.Second

// silence is the longest time for which nothing is sent to a client while nothing changes.
const silence = 15 * time.Second

// Secure sets headers that isolate the page: it loads no script or style from other servers, cannot be
// framed, is not cached, and other sites do not learn its address.
func Secure(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	// With no-referrer, browsers would send the page's own forms with "Origin: null". Over plain HTTP, to
	// any host but localhost, they would send nothing else that says where the forms come from.
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// Asset answers requests for live.js and live.css, in any folder. It returns false if the request is for
// anything else.
func Asset(w http.ResponseWriter, r *http.Request) (ok bool) {
	switch path.Base(r.URL.Path) {
	case "live.js":
		w.Header().Set("Content-Type", "text/javascript; charset=utf-8")
		_, _ = w.Write(script)
	case "live.css":
		w.Header().Set("Content-Type", "text/css; charset=utf-8")
		_, _ = w.Write(style)
	default:
		return false
	}
	return true
}

// Streams are the event streams of a page. Their number is limited, and each sends events at a fixed
// interval. Streams are safe for concurrent use.
type Streams struct {
	every  time.Duration
	places chan struct{}
}

// NewStreams returns Streams for at most most clients, each with an event per interval every.
func NewStreams(most int, every time.Duration) *Streams {
	return &Streams{every: every, places: make(chan struct{}, most)}
}

// Serve sends the client the output of render whenever it has changed, until the client leaves, is too
// slow, or done is closed. It never queues more than one event for a client.
func (s *Streams) Serve(w http.ResponseWriter, r *http.Request, done <-chan struct{}, render func(io.Writer) error) {
	select {
	case s.places <- struct{}{}:
		defer func() { <-s.places }()
	default:
		w.Header().Set("Retry-After", "10")
		http.Error(w, "too many pages are being updated live already; this one stays as it was when it was loaded", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	// nginx would keep the end of an event until the next one fills its buffer.
	w.Header().Set("X-Accel-Buffering", "no")
	if r.Method == http.MethodHead { // the client asks whether there are events, but wants none
		return
	}
	client := http.NewResponseController(w)
	ticker := time.NewTicker(s.every)
	defer ticker.Stop()
	var page, event, sent bytes.Buffer
	quietSince := time.Now()
	for {
		page.Reset()
		if err := render(&page); err != nil {
			return
		}
		event.Reset()
		switch {
		case !bytes.Equal(page.Bytes(), sent.Bytes()):
			encode(&event, page.Bytes())
			sent.Reset()
			sent.Write(page.Bytes())
		case time.Since(quietSince) >= silence:
			event.WriteString(":\n\n")
		}
		if event.Len() > 0 {
			quietSince = time.Now()
			// A writer that does not support deadlines can be blocked by its client, but at most as many
			// times as there are places.
			_ = client.SetWriteDeadline(quietSince.Add(patience))
			if _, err := w.Write(event.Bytes()); err != nil {
				return
			}
			if err := client.Flush(); err != nil {
				return
			}
			// Over HTTP/2, a deadline also ends a stream that writes nothing when it comes. Over HTTP/1, it would be
			// that of the connection's next request.
			_ = client.SetWriteDeadline(time.Time{})
		}
		select {
		case <-ticker.C:
		case <-r.Context().Done():
			return
		case <-done:
			return
		}
	}
}

// encode writes data as one event. It replaces every kind of line end by a line feed.
func encode(w *bytes.Buffer, data []byte) {
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	data = bytes.ReplaceAll(data, []byte("\r"), []byte("\n"))
	for line := range bytes.Lines(data) {
		w.WriteString("data: ")
		w.Write(bytes.TrimSuffix(line, []byte("\n")))
		w.WriteByte('\n')
	}
	w.WriteByte('\n')
}
