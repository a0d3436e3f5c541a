package livepage

import (
	"context"
	"io"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/tierlimit/tierlimit/internal/inspect"
	"github.com/tierlimit/tierlimit/internal/live"
	"github.com/tierlimit/tierlimit/internal/option"
	"github.com/tierlimit/tierlimit/tiered"
)

const (
	// viewers is the number of pages that are updated at once. Further pages show the state at the time
	// when they were loaded.
	viewers = 16
	// updateEvery is the time between two updates, and averageOver the number of updates over which
	// rates are averaged.
	updateEvery = time.Second
	averageOver = 5
	// longestForm is the largest number of bytes that a form may send.
	longestForm = 64 << 10
)

// Page is the live page of one limiter. It is an http.Handler that must be mounted at a path that ends
// in a slash, with or without http.StripPrefix. It is safe for concurrent use.
type Page struct {
	inside     inspect.Inside
	name       func(key string) shownKey // how keys are shown
	hottest    *hottest                  // nil without HottestKeys
	allowReset bool
	sameOrigin *http.CrossOriginProtection
	hosts      live.Hosts
	streams    *live.Streams
	done       <-chan struct{} // closed when the page or the limiter is closed
	close      context.CancelFunc
	history    history
	looking    sync.WaitGroup // for the goroutine that records the history
	stopWatch  func()

	mu     sync.Mutex       // guards the fields below
	since  inspect.Snapshot // the beginning of the period over which the last load's rates are averages
	loaded inspect.Snapshot // at the last load
}

// Option configures a page. [New] checks the option's arguments.
type Option func(*Page) error

// HottestKeys makes the page show which keys ask most often. It finds them in a sample of the
// decisions, with about 400 kB of memory. A decision then costs some nanoseconds more, and one in the
// sample, at most a few thousand a second, takes a lock. Only one page of a limiter can have this
// option.
func HottestKeys() Option {
	return option.Always(func(p *Page) { p.hottest = newHottest(nil, time.Now) })
}

// HashKeys shows keys as the first 16 hexadecimal digits of HMAC-SHA-256 with the secret, which must
// have at least 16 bytes. That is enough to tell keys apart, and whoever knows the secret can recognize
// a key. Instances with the same secret show the same hashes. The keys themselves are then not kept in
// memory either.
func HashKeys(secret []byte) Option {
	secret = append([]byte(nil), secret...)
	return option.Set(func(p *Page) { p.name = hashedWith(secret) },
		len(secret) >= 16, "the secret for hashing keys has %d bytes, must have at least 16", len(secret))
}

// AllowReset adds a button with which anyone who can open the page can reset a key, as if it had never
// been used (see tiered.Rule.Reset). Other sites cannot press the button: requests are refused if the
// browser says that they come from another origin.
func AllowReset() Option {
	return option.Always(func(p *Page) { p.allowReset = true })
}

// Hosts sets names under which browsers may request the page, like limits.example.org, without scheme
// and port. Without this option, the page is served under localhost and IP addresses only, with any
// port, and requests for any other host get status 421 (Misdirected Request). Otherwise a site whose
// name is made to resolve to this server (DNS rebinding) could make a visitor's browser read keys, and
// reset them, as if the site were the page. Behind a reverse proxy, use Hosts, and make the proxy pass on
// the client's Host. If the proxy sent the address of this server instead, the page would be served to
// every site, because it is always served under addresses.
func Hosts(names ...string) Option {
	return func(p *Page) (err error) {
		if p.hosts, err = live.NewHosts(names...); err != nil {
			return option.Invalid("%w", err)
		}
		return nil
	}
}

// New returns the page of a limiter. Close the page if it is no longer needed while the limiter still
// is. Also close it when an http.Server shuts down, because the server otherwise waits for pages that
// are being updated: server.RegisterOnShutdown(page.Close).
//
// Errors wrap [limit.ErrInvalidOption].
func New(limiter *tiered.Limiter, options ...Option) (*Page, error) {
	if limiter == nil {
		return nil, option.Invalid("the limiter is nil")
	}
	p := &Page{
		inside:     inspect.Of(limiter),
		name:       inClear,
		sameOrigin: http.NewCrossOriginProtection(),
		streams:    live.NewStreams(viewers, updateEvery),
		stopWatch:  func() {},
	}
	if err := option.Apply(p, options); err != nil {
		return nil, err
	}
	p.inside.RememberOwnLimits()
	if p.hottest != nil {
		p.hottest.name = p.name
		stop, ok := p.inside.Watch(p.hottest.watch)
		if !ok {
			return nil, option.Invalid("another page of this limiter already finds its hottest keys")
		}
		p.stopWatch = stop
	}
	var ctx context.Context
	ctx, p.close = context.WithCancel(p.inside.Context())
	p.done = ctx.Done()
	p.loaded = p.inside.Snapshot()
	p.since = p.loaded
	p.history.add(momentOf(p.loaded)) // before New returns, so that later decisions belong to the last minute
	p.looking.Go(func() { p.history.run(ctx, p.inside) })
	return p, nil
}

// Close ends the updates of open pages, and stops watching the limiter's decisions. A page that is loaded
// afterwards shows the limiter's state at that moment, without the hottest keys. Closing again does nothing.
func (p *Page) Close() {
	p.stopWatch()
	p.close()
	p.looking.Wait()
}

// ServeHTTP serves the page, its updates, and its assets.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	live.Secure(w)
	if !p.hosts.Accept(w, r, "livepage.Hosts") {
		return
	}
	index := r.URL.Path == "" || strings.HasSuffix(r.URL.Path, "/")
	switch {
	case index && r.Method == http.MethodPost:
		p.serveKey(w, r)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		allow := "GET, HEAD"
		if index {
			allow += ", POST"
		}
		w.Header().Set("Allow", allow)
		http.Error(w, "this page must be read with GET", http.StatusMethodNotAllowed)
	case index:
		p.write(w, http.StatusOK, asked{})
	case path.Base(r.URL.Path) == "events":
		p.serveEvents(w, r)
	case !live.Asset(w, r):
		http.Error(w, "there is no such page; the address of the live page ends in a slash", http.StatusNotFound)
	}
}

// write writes the whole page. Its rates are averages since the page was last loaded.
func (p *Page) write(w http.ResponseWriter, status int, a asked) {
	now := p.inside.Snapshot()
	p.mu.Lock()
	p.since, p.loaded = p.loaded, now
	since := p.since
	p.mu.Unlock()
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_ = templates.ExecuteTemplate(w, "page", p.shown(since, now, a)) // fails only if the client has gone
}

// serveEvents keeps a loaded page up to date. The rates of its updates continue from the rates with
// which the page was loaded.
func (p *Page) serveEvents(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	past := []inspect.Snapshot{p.since}
	p.mu.Unlock()
	p.streams.Serve(w, r, p.done, func(w io.Writer) error {
		now := p.inside.Snapshot()
		past = append(past, now)
		past = past[max(0, len(past)-1-averageOver):]
		return templates.ExecuteTemplate(w, "live", p.shown(past[0], now, asked{}))
	})
}
