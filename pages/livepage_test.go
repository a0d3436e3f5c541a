//go:build chromium

package pages

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/tierlimit/tierlimit/internal/live"
	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/livepage"
	"github.com/tierlimit/tierlimit/tiered"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// served mounts the live page of a limiter with the rule "search" of 3 per hour.
func served(t *testing.T) (r *tiered.Rule, url string) {
	t.Helper()
	_, r, url = servedLimiter(t)
	return r, url
}

func servedLimiter(t *testing.T) (l *tiered.Limiter, r *tiered.Rule, url string) {
	t.Helper()
	l, err := tiered.New(redistest.Shared(t).Client(t), tiered.Prefix(redistest.Prefix()), tiered.Deadline(5*time.Second),
		tiered.Logger(slog.New(slog.NewTextHandler(io.Discard, nil))), tiered.LedgerKeys(1000), tiered.RememberDenials(1000))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	if r, err = l.Rule("search", limit.PerHour(3)); err != nil {
		t.Fatal(err)
	}
	p, err := livepage.New(l, livepage.HottestKeys(), livepage.AllowReset(), livepage.Hosts(aName))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	mux := http.NewServeMux()
	mux.Handle("/debug/tierlimit/", p)
	server := httptest.NewServer(mux)
	t.Cleanup(server.CloseClientConnections)
	return l, r, server.URL + "/debug/tierlimit/"
}

func allow(t *testing.T, r *tiered.Rule, key string, times int) {
	t.Helper()
	for range times {
		if _, err := r.Allow(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
}

// rows counts the rows of the hottest keys with a text.
func rows(b *browser, text string) int {
	return strings.Count(eval[string](b, `document.getElementById("hottest").innerText`), text)
}

func TestLivePage(t *testing.T) {
	r, url := served(t)
	b := open(t, url)
	b.run(chromedp.Navigate(url))
	b.shows("Live.")
	b.shows("None yet.")

	// The page keeps itself up to date, and hostile text in keys is not interpreted.
	allow(t, r, "alice", 5)
	allow(t, r, `<img src=x onerror=alert(1)>`, 2)
	allow(t, r, `"><script>alert(2)</script>`, 2)
	b.shows("alice")
	b.shows("<img src=x onerror=alert(1)>")
	if n := eval[int](b, `document.querySelectorAll("img").length + document.scripts.length`); n != 1 {
		t.Errorf("%d scripts and images, want the page's own script only", n)
	}
	b.inAllLooks("livepage")
	roles := b.roles()
	for role, least := range map[string]int{
		"banner": 1, "main": 1, "heading": 6, "region": 5, "table": 3, "columnheader": 12, "rowheader": 3, "status": 2, "textbox": 2, "combobox": 1,
	} {
		if roles[role] < least {
			t.Errorf("a screen reader finds %d of role %s, want at least %d: %v", roles[role], role, least, roles)
		}
	}

	// Pause and resume by keyboard.
	b.tabTo("#pause")
	b.run(chromedp.KeyEvent(" "))
	b.until(`document.getElementById("pause").getAttribute("aria-pressed") === "true"`)
	b.shows("Paused.")
	allow(t, r, "in-the-pause", 1)
	time.Sleep(3 * time.Second) // long enough for three updates that must not come
	if rows(b, "in-the-pause") != 0 {
		t.Error("updated while paused")
	}
	b.run(chromedp.KeyEvent(" "))
	b.shows("in-the-pause")

	// The hottest keys do not move under the focus, while the rest of the page is updated.
	b.tabTo("#hottest button")
	focused := eval[string](b, "document.activeElement.value")
	allow(t, r, "newcomer", 20)
	b.until(`document.getElementById("decisions").innerText.includes("\t11\t")`) // the newcomer's three
	if rows(b, "newcomer") != 0 || eval[string](b, "document.activeElement.value") != focused {
		t.Error("rows moved under the focus")
	}
	b.submits(chromedp.KeyEvent(kb.Enter))
	b.shows("says the tier")

	// Ask for a key by keyboard, and reset it.
	b.tabTo(`#key input[name=key]`)
	b.submits(chromedp.KeyEvent("alice"), chromedp.KeyEvent(kb.Enter))
	b.shows("would be denied")
	b.tabTo(`button[value=reset]`)
	b.submits(chromedp.KeyEvent(kb.Enter))
	b.shows("Reset: the key is as if never used")
	b.shows("3 of 3")
}

// The page correctly shows groups that hold limits back, keys with their own limits, and bursts. By keyboard, a user
// can ask for a key under another limit.
func TestLivePageOfGroupsAndPlans(t *testing.T) {
	l, r, url := servedLimiter(t)
	if _, err := l.Rule("ingest", limit.PerMinute(200_000)); err != nil {
		t.Fatal(err)
	}
	gold, err := r.WithLimit(limit.PerHour(1000))
	if err != nil {
		t.Fatal(err)
	}
	address, err := l.Rule("address", limit.PerHour(2))
	if err != nil {
		t.Fatal(err)
	}
	for range 12 {
		if _, err := l.AllowAll(t.Context(), tiered.Request{Rule: gold, Key: "acme", Cost: 1}, tiered.Request{Rule: address, Key: "192.0.2.1", Cost: 1}); err != nil {
			t.Fatal(err)
		}
	}
	b := open(t, url)
	b.run(chromedp.Navigate(url))
	b.shows("Held back in all")
	b.shows("gcra:burst=100000")

	// The table of holds and slots appears by itself.
	jobs, err := l.Rule("jobs", limit.Concurrent(10))
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := l.Rule("tokens", limit.PerHour(100_000))
	if err != nil {
		t.Fatal(err)
	}
	if slot, d, err := jobs.Acquire(t.Context(), "acme", 3); slot == nil || err != nil {
		t.Fatalf("%+v, %v", d, err)
	}
	if hold, d, err := tokens.Hold(t.Context(), "acme", 2000, time.Hour); hold == nil || err != nil {
		t.Fatalf("%+v, %v", d, err)
	}
	b.until(`document.getElementById("held").innerText.includes("tokens\t2,000\t1\t0\t0\t0\t0\t0")`)
	b.until(`document.getElementById("held").innerText.includes("jobs\t3\t0\t0\t0\t0\t0\t0")`)
	eval[string](b, `document.querySelector("#key select").value = "search"`)
	b.tabTo(`#key input[name=key]`)
	b.submits(chromedp.KeyEvent("acme"), chromedp.KeyEvent(kb.Enter))
	b.shows("998 of 1,000")
	b.shows("the last limit that this process used for the key")
	b.inAllLooks("livepage-key")
	b.tabTo(`#key input[name=limit]`)
	b.submits(chromedp.KeyEvent("10/1h"), chromedp.KeyEvent(kb.Enter))
	b.shows("8 of 10")
}

// A key that is long and has no spaces does not make the page wider than the screen.
func TestLivePageOfALongKey(t *testing.T) {
	r, url := served(t)
	key := strings.Repeat("W", 300)
	allow(t, r, key, 2)
	b := open(t, url)
	b.run(chromedp.Navigate(url))
	b.shows("300 bytes")
	b.tabTo(`#key input[name=key]`)
	b.submits(chromedp.KeyEvent(key), chromedp.KeyEvent(kb.Enter))
	b.shows("1 of 3")
	b.inAllLooks("livepage-long-key")
}

// A rule's name of the greatest length neither makes the page wider than the screen nor, on a desktop, pushes the
// numbers of its rows out of view. The name of a rule is also in the list of rules from which a user chooses one.
func TestLivePageOfLongRuleNames(t *testing.T) {
	l, _, url := servedLimiter(t)
	r, err := l.Rule(strings.Repeat("W", 64), limit.PerHour(3))
	if err != nil {
		t.Fatal(err)
	}
	jobs, err := l.Rule(strings.Repeat("jobs-", 12), limit.Concurrent(10))
	if err != nil {
		t.Fatal(err)
	}
	if slot, d, err := jobs.Acquire(t.Context(), "acme", 3); slot == nil || err != nil {
		t.Fatalf("%+v, %v", d, err)
	}
	allow(t, r, strings.Repeat("k", 100), 5)
	b := open(t, url)
	b.run(chromedp.Navigate(url))
	b.shows("WWW")
	b.shows("kkk")
	b.inAllLooks("livepage-long-names")
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: 1200, Height: 900, DeviceScaleFactor: 1})
	for _, table := range eval[[]string](b, `[...document.querySelectorAll(".scroll")].filter((e) => e.scrollWidth > e.clientWidth).map((e) => e.parentElement.id)`) {
		b.t.Errorf("the columns at the right of the table of %s are out of view", table)
	}
}

// Over plain HTTP to a name, browsers do not send Sec-Fetch-Site to show that a form is the page's own.
func TestLivePageUnderAName(t *testing.T) {
	r, url := served(t)
	url = strings.Replace(url, "127.0.0.1", aName, 1)
	allow(t, r, "alice", 2)
	b := open(t, url)
	b.run(chromedp.Navigate(url))
	b.shows("Live.")
	b.tabTo(`#key input[name=key]`)
	b.submits(chromedp.KeyEvent("alice"), chromedp.KeyEvent(kb.Enter))
	b.shows("1 of 3")
	b.tabTo(`button[value=reset]`)
	b.submits(chromedp.KeyEvent(kb.Enter))
	b.shows("3 of 3")
}

// Without a script, the page shows the state when it was loaded, and its form works.
func TestWithoutScript(t *testing.T) {
	r, url := served(t)
	allow(t, r, "alice", 2)
	b := open(t, url)
	call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	b.run(chromedp.Navigate(url))
	if eval[bool](b, `!document.getElementById("pause").hidden`) {
		t.Error("a button that does nothing")
	}
	b.shows("reload for the current state")
	b.shows("alice")
	b.submits(chromedp.SendKeys(chromedp.CSS(`#key input[name=key]`), "alice"+kb.Enter))
	b.shows("1 of 3")
}

// With reduced motion, the page is updated every five seconds.
func TestReducedMotion(t *testing.T) {
	r, url := served(t)
	b := open(t, url)
	b.prefers("prefers-reduced-motion", "reduce")
	b.run(chromedp.Navigate(url))
	b.shows("Live.")
	updates := func() int { return eval[int](b, "window.updates") }
	eval[int](b, `new MutationObserver(() => window.updates++).observe(document.getElementById("decisions"), {subtree: true, childList: true, characterData: true}), window.updates = 0`)
	for range 70 { // seven seconds, in which the state changes all the time
		allow(t, r, "alice", 1)
		time.Sleep(100 * time.Millisecond)
	}
	if n := updates(); n < 1 || n > 2 {
		t.Errorf("%d updates in seven seconds", n)
	}
}

// With reduced motion, the last change is shown, too, although it came less than five seconds after the one before it.
func TestReducedMotionShowsTheLastChange(t *testing.T) {
	var text atomic.Value
	text.Store("first")
	streams := live.NewStreams(1, 10*time.Millisecond)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case live.Asset(w, r):
		case r.URL.Path == "/events":
			streams.Serve(w, r, nil, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, `<p id="part" data-live>%s</p>`, text.Load())
				return err
			})
		default:
			_, _ = io.WriteString(w, `<!doctype html><title>page</title><link rel="icon" href="data:,"><script src="live.js" defer></script>
				<button id="pause" hidden>Pause</button><span id="connection"></span><p id="part" data-live>loaded</p>`)
		}
	}))
	t.Cleanup(server.Close) // after the browser
	b := open(t, server.URL)
	b.prefers("prefers-reduced-motion", "reduce")
	b.run(chromedp.Navigate(server.URL))
	b.shows("first")
	text.Store("last")
	b.shows("last")
}
