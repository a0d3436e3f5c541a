package livepage

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/inspect"
	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// newLimiter returns a limiter on the shared Redis with the rule "search" of 3 per hour.
func newLimiter(t *testing.T) (*tiered.Limiter, *tiered.Rule) {
	t.Helper()
	return newLimiterOf(t, redistest.Prefix())
}

// beside returns another limiter with the same rule and the same counts, like that of another process.
func beside(t *testing.T, l *tiered.Limiter) (*tiered.Limiter, *tiered.Rule) {
	t.Helper()
	return newLimiterOf(t, inspect.Of(l).Snapshot().Prefix)
}

func newLimiterOf(t *testing.T, prefix string, options ...tiered.Option) (*tiered.Limiter, *tiered.Rule) {
	t.Helper()
	client := redistest.Shared(t).Client(t)
	options = append(options, tiered.Prefix(prefix), tiered.Deadline(5*time.Second),
		tiered.Logger(slog.New(slog.NewTextHandler(io.Discard, nil))), tiered.LedgerKeys(1000), tiered.RememberDenials(1000))
	l := redistest.Reached(t, client, func() (*tiered.Limiter, error) { return tiered.New(client, options...) })
	t.Cleanup(func() { _ = l.Close() })
	r, err := l.Rule("search", limit.PerHour(3))
	if err != nil {
		t.Fatal(err)
	}
	return l, r
}

// mounted serves a page in the way a user would mount it.
func mounted(t *testing.T, l *tiered.Limiter, options ...Option) (*Page, string) {
	t.Helper()
	p, err := New(l, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	mux := http.NewServeMux()
	mux.Handle("/debug/tierlimit/", p)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return p, server.URL + "/debug/tierlimit/"
}

func allow(t *testing.T, r *tiered.Rule, key string, times int) {
	t.Helper()
	for range times {
		if _, err := r.Allow(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
}

// A rule's numbers do not decrease when its dry run ends, because the page shows differences of these
// numbers.
func TestARuleIsEnforcedAfterADryRun(t *testing.T) {
	l, _ := newLimiter(t)
	p, url := mounted(t, l)
	r, err := l.Rule("tried", limit.PerHour(3), tiered.DryRun())
	if err != nil {
		t.Fatal(err)
	}
	allow(t, r, "k", 5)
	p.history.add(momentOf(p.inside.Snapshot()))
	get(t, url)
	if r, err = l.ChangeRule("tried", limit.PerHour(3)); err != nil {
		t.Fatal(err)
	}
	allow(t, r, "k", 1)
	p.history.add(momentOf(p.inside.Snapshot()))
	if _, page := get(t, url); !strings.Contains(page, "3 allowed and 3 denied") {
		t.Errorf("%s", page)
	}
	for _, d := range p.shown(p.since, p.inside.Snapshot(), asked{}).Decisions {
		if d.AllowedPerSecond > 10 || d.DeniedPerSecond > 10 {
			t.Errorf("%+v", d)
		}
	}
	for _, bar := range p.history.until(momentOf(p.inside.Snapshot())).Bars {
		if bar.Allowed < 0 || bar.Denied < 0 || bar.Allowed+bar.Denied > 100 {
			t.Errorf("%+v", bar)
		}
	}
}

// A rule that denies nothing is not shown as denying, neither in the numbers nor among the hottest
// keys. A request that another limit denied is held back.
func TestHeldBackIsNotDenied(t *testing.T) {
	l, r := newLimiter(t)
	tenant, err := l.Rule("tenant", limit.PerHour(1000))
	if err != nil {
		t.Fatal(err)
	}
	_, page := mounted(t, l, HottestKeys())
	if _, body := get(t, page); strings.Contains(body, "Held back") {
		t.Error("without groups there is nothing to hold back")
	}
	allow(t, r, "192.0.2.1", 3)
	for range 7 {
		if _, err := l.AllowAll(t.Context(), tiered.Request{Rule: tenant, Key: "acme", Cost: 1}, tiered.Request{Rule: r, Key: "192.0.2.1", Cost: 1}); err != nil {
			t.Fatal(err)
		}
	}
	_, body := get(t, page)
	contains(t, body, "Held back in all")
	if !regexp.MustCompile(`acme</span></th><td class="text">tenant</td><td>[0-9.]+</td><td>0 %</td>`).MatchString(body) {
		t.Errorf("the tenant is not shown as denied nothing:\n%s", body)
	}
	total := 0
	for _, tier := range []string{"redis", "local"} {
		row := regexp.MustCompile(`<tr><th scope="row">tenant</th><td class="text">` + tier + `</td>.*<td>0</td><td>0</td><td>(\d)</td></tr>`).FindStringSubmatch(body)
		if row != nil {
			n, _ := strconv.Atoi(row[1])
			total += n
		}
	}
	if total != 7 {
		t.Errorf("%d of the tenant's are shown as held back and not denied, want 7:\n%s", total, body)
	}
}

func read(t *testing.T, response *http.Response, err error) (status int, body string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	all, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(all)
}

func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	response, err := http.Get(url)
	return read(t, response, err)
}

func post(t *testing.T, url string, form url.Values, header ...string) (status int, body string) {
	t.Helper()
	request, err := http.NewRequest(http.MethodPost, url, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	return read(t, response, err)
}

func contains(t *testing.T, body string, wanted ...string) {
	t.Helper()
	for _, want := range wanted {
		if !strings.Contains(body, want) {
			t.Errorf("%q is not in the page:\n%s", want, body)
		}
	}
}

// Without JavaScript, the page shows everything.
func TestPage(t *testing.T) {
	now := time.Now() // stands still, so that the denial stays remembered
	l, r := newLimiterOf(t, redistest.Prefix(), tiered.VirtualClock(func() time.Time { return now }))
	_, page := mounted(t, l, HottestKeys())
	allow(t, r, "alice", 4)
	redistest.Eventually(t, "the denial is remembered", func() bool {
		d, err := r.Peek(t.Context(), "alice", 1)
		if err != nil {
			t.Fatal(err)
		}
		return d.Tier == limit.TierLocal
	})
	allow(t, r, "alice", 1)
	if _, err := r.AllowUpTo(t.Context(), "bob", 2); err != nil {
		t.Fatal(err)
	}
	if _, err := l.AllowAll(t.Context(), tiered.Request{Rule: r, Key: "carol", Cost: 1}); err != nil {
		t.Fatal(err)
	}
	status, body := get(t, page)
	if status != http.StatusOK {
		t.Fatal(status, body)
	}
	contains(t, body, "Redis decides.", "<dd>closed</dd>", "sliding-log", "approximate", "chosen by the size of the limit",
		`<td class="text">redis</td>`, "<td>5</td><td>1</td>", `<td class="text">local</td>`, "<td>0</td><td>1</td>",
		"alice", "bob", "carol", "40 %", "Look at alice of search")
	for _, asset := range []string{"live.js", "live.css"} {
		if status, _ := get(t, page+asset); status != http.StatusOK {
			t.Errorf("%s: %d", asset, status)
		}
	}
	if status, _ := get(t, page+"other"); status != http.StatusNotFound {
		t.Error(status)
	}
	if response, err := http.Head(page); err != nil || !strings.Contains(response.Header.Get("Content-Security-Policy"), "default-src 'none'") {
		t.Errorf("%v", err)
	}
	for name, allowed := range map[string]string{"": "GET, HEAD, POST", "events": "GET, HEAD", "live.js": "GET, HEAD"} {
		request, _ := http.NewRequest(http.MethodDelete, page+name, nil)
		response, err := http.DefaultClient.Do(request)
		if err != nil || response.StatusCode != http.StatusMethodNotAllowed || response.Header.Get("Allow") != allowed {
			t.Errorf("DELETE of %q: %v, %v", name, response, err)
		}
	}
	if _, err := New(l, HottestKeys()); !errors.Is(err, limit.ErrInvalidOption) {
		t.Errorf("a second page that finds hottest keys: %v", err)
	}
}

// Anybody may choose the bytes of keys: a key never becomes markup of the page.
func TestHostileKeys(t *testing.T) {
	l, r := newLimiter(t)
	_, page := mounted(t, l, HottestKeys())
	keys := []string{
		`<script>alert(1)</script>`, `"><img src=x onerror=alert(2)>`, `' onfocus='alert(3)`, "</td></table>", `{{.}}`,
		"a\r\n\r\ndata: <b>forged</b>\n\n", "\xff\xfe<script>", "\u202egnp.exe", "\x00", strings.Repeat("<script>", 100),
	}
	for i, key := range keys {
		allow(t, r, key, 10+i)
	}
	_, body := get(t, page)
	for _, key := range keys {
		if status, answer := post(t, page, url.Values{"rule": {"search"}, "key": {inClear(key).Text}}); status != http.StatusOK {
			t.Errorf("%q: %d", key, status)
		} else {
			body += answer
		}
	}
	_, event := event(t, page+"events")
	body += event
	for _, bad := range []string{"<script>", "<img", "onerror=alert(2)>", "' onfocus='", "</td></table>\n<tr>", "<b>forged", "\u202e", "\x00", "\xff"} {
		if strings.Contains(body, bad) {
			t.Errorf("%q got into the page", bad)
		}
	}
	contains(t, body, "&lt;script&gt;alert(1)", `\xff\xfe&lt;script&gt;`, `\u202egnp.exe`, "800 bytes")
}

// event reads the first event of a stream.
func event(t *testing.T, url string) (status int, data string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() && lines.Text() != "" {
		line, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			t.Errorf("not a line of an event: %q", lines.Text())
		}
		data += line + "\n"
	}
	return response.StatusCode, data
}

// An event contains the page's live parts, and no part that the user types into.
func TestEvents(t *testing.T) {
	l, r := newLimiter(t)
	_, page := mounted(t, l)
	allow(t, r, "alice", 1)
	status, data := event(t, page+"events")
	if status != http.StatusOK || strings.Contains(data, "<form") || strings.Contains(data, "<html") {
		t.Error(status, data)
	}
	contains(t, data, `id="state" data-live`, `id="decisions" data-live`, `id="held" data-live`, `id="rules" data-live`)
	if strings.Contains(data, "Hottest") {
		t.Error("hottest keys were not asked for")
	}
}

// heldUnits returns the section of a page that shows held units.
func heldUnits(t *testing.T, page string) string {
	t.Helper()
	_, body := get(t, page)
	_, section, found := strings.Cut(body, `id="held"`)
	if section, _, _ = strings.Cut(section, "</section>"); !found {
		t.Fatal(body)
	}
	return section
}

// Held units, and what became of them, are shown for each rule. Rules that hold nothing are not shown.
func TestHeldUnits(t *testing.T) {
	l, _ := newLimiter(t)
	_, page := mounted(t, l)
	held := func() string { return heldUnits(t, page) }
	contains(t, held(), "None yet.")
	jobs, err := l.Rule("jobs", limit.Concurrent(10), tiered.SlotTTL(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := l.Rule("tokens", limit.PerHour(10_000), tiered.Unsettled(tiered.GiveBack))
	if err != nil {
		t.Fatal(err)
	}
	row := func(name string, numbers ...any) string {
		return `<tr><th scope="row">` + name + "</th>" + fmt.Sprintf(strings.Repeat("<td>%v</td>", len(numbers)), numbers...) + "</tr>"
	}
	contains(t, held(), row("jobs", 0, 0, 0, 0, 0, 0, 0))
	slot, d, err := jobs.Acquire(t.Context(), "acme", 3)
	if slot == nil || err != nil {
		t.Fatalf("%+v, %v", d, err)
	}
	hold, d, err := tokens.Hold(t.Context(), "acme", 2000, time.Hour)
	if hold == nil || err != nil {
		t.Fatalf("%+v, %v", d, err)
	}
	short, d, err := tokens.Hold(t.Context(), "acme", 500, time.Millisecond)
	if short == nil || err != nil {
		t.Fatalf("%+v, %v", d, err)
	}
	section := held()
	if contains(t, section, row("tokens", "2,500", 2, 0, 0, 0, 0, 0)); strings.Contains(section, "search") {
		t.Errorf("a rule that holds nothing:\n%s", section)
	}
	if slot.Held() { // false if the machine has stalled
		contains(t, section, row("jobs", 3, 0, 0, 0, 0, 0, 0))
	}
	for { // until the hold has ended
		d, err := tokens.Peek(t.Context(), "acme", 1)
		if err != nil {
			t.Fatal(err)
		}
		if d.Remaining == 8000 {
			break
		}
	}
	if err := short.Settle(t.Context(), 400); err != nil {
		t.Fatal(err)
	}
	contains(t, held(), row("tokens", "2,000", 1, 1, 0, 1, 0, 0))
	if err := tokens.Reset(t.Context(), "acme"); err != nil { // Redis forgets the hold
		t.Fatal(err)
	}
	if err := hold.Settle(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	contains(t, held(), row("tokens", 0, 0, 2, 0, 1, 1, 0))
}

// Settlements that wait for Redis are shown, and so are slots that were lost without Redis.
func TestHeldUnitsWithoutRedis(t *testing.T) {
	server := redistest.Start(t)
	l, err := tiered.New(server.Client(t), tiered.Deadline(200*time.Millisecond), tiered.Logger(slog.New(slog.DiscardHandler)),
		tiered.LedgerKeys(1000), tiered.RememberDenials(1000))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	_, page := mounted(t, l)
	shows := func(name, settled, waiting, lostSlots string) {
		t.Helper()
		want := regexp.MustCompile(`<tr><th scope="row">` + name + `</th><td>0</td><td>0</td><td>` + settled + `</td><td>` + waiting + `</td><td>0</td><td>0</td><td>` + lostSlots + `</td></tr>`)
		body := ""
		for deadline := time.Now().Add(60 * time.Second); !want.MatchString(body); time.Sleep(time.Millisecond) {
			if body = heldUnits(t, page); time.Now().After(deadline) {
				t.Fatalf("%v is not in:\n%s", want, body)
			}
		}
	}
	jobs := l.MustRule("jobs", limit.Concurrent(10), tiered.SlotTTL(2*time.Second), tiered.OnOutage(tiered.Deny))
	tokens := l.MustRule("tokens", limit.PerHour(10_000), tiered.OnOutage(tiered.Deny))
	var slot *tiered.Slot
	for slot == nil { // on a slow machine, the slot may be lost before it is returned
		if slot, _, err = jobs.Acquire(t.Context(), "acme", 3); err != nil {
			t.Fatal(err)
		}
	}
	var hold *tiered.Hold
	for hold == nil || hold.Units() != 2000 {
		if hold, _, err = tokens.Hold(t.Context(), "acme", 2000, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	server.Pause()
	if err := hold.Settle(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	shows("tokens", "[0-9]+", "1", "0")
	shows("jobs", "0", "0", "[1-9]")
	server.Resume()
	shows("tokens", "[1-9]", "0", "0")
}

func TestUpdatesEnd(t *testing.T) {
	for name, end := range map[string]func(*tiered.Limiter, *Page){
		"with the page":    func(_ *tiered.Limiter, p *Page) { p.Close() },
		"with the limiter": func(l *tiered.Limiter, _ *Page) { _ = l.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			l, _ := newLimiter(t)
			p, page := mounted(t, l)
			response, err := http.Get(page + "events")
			if err != nil {
				t.Fatal(err)
			}
			end(l, p)
			if _, body := read(t, response, nil); !strings.HasPrefix(body, "data: ") {
				t.Error(body)
			}
		})
	}
}

func TestAKeysState(t *testing.T) {
	l, r := newLimiter(t)
	_, page := mounted(t, l)
	allow(t, r, "caf\xc3\xa9\n", 2)
	ask := func(key, cost string) string {
		t.Helper()
		status, body := post(t, page, url.Values{"rule": {"search"}, "key": {key}, "cost": {cost}, "do": {"look"}})
		if status != http.StatusOK {
			t.Fatal(status, body)
		}
		return body
	}
	for range 3 { // a question charges nothing
		contains(t, ask(`"caf\xc3\xa9\n"`, "1"), "would be allowed", "1 of 3", "tier “redis”")
	}
	contains(t, ask(`"café\n"`, "2"), "would be denied", "1 of 3", "59m59.")
	contains(t, ask("someone", ""), "3 of 3")
	for name, form := range map[string]url.Values{
		"no such rule":       {"rule": {"find"}, "key": {"k"}},
		"is empty":           {"rule": {"search"}},
		"not a whole number": {"rule": {"search"}, "key": {"k"}, "cost": {"1.5"}},
		"cost 4":             {"rule": {"search"}, "key": {"k"}, "cost": {"4"}},
		"not a quoted Go":    {"rule": {"search"}, "key": {`"k`}},
		"request body too":   {"key": {strings.Repeat("k", longestForm)}},
	} {
		want := name
		if name == "no such rule" {
			want = "there is no rule"
		}
		if status, body := post(t, page, form); status != http.StatusBadRequest || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
	_ = l.Close()
	if status, _ := post(t, page, url.Values{"rule": {"search"}, "key": {"k"}}); status != http.StatusServiceUnavailable {
		t.Errorf("closed: %d", status)
	}
}

// The page can only read, unless AllowReset is set. Even then, only the page itself can reset, and no
// other site.
func TestReset(t *testing.T) {
	l, r := newLimiter(t)
	_, reading := mounted(t, l)
	_, page := mounted(t, l, AllowReset())
	form := url.Values{"rule": {"search"}, "key": {"alice"}, "do": {"reset"}}
	free := func() int64 {
		t.Helper()
		d, err := r.Peek(t.Context(), "alice", 1)
		if err != nil {
			t.Fatal(err)
		}
		return d.Remaining
	}
	allow(t, r, "alice", 2)
	if status, body := post(t, reading, form); status != http.StatusForbidden || !strings.Contains(body, "AllowReset") {
		t.Error(status, body)
	}
	for _, header := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Origin", "https://elsewhere.example"}, {"Sec-Fetch-Site", "same-site"}} {
		if status, _ := post(t, page, form, header...); status != http.StatusForbidden {
			t.Errorf("%v: %d", header, status)
		}
	}
	if status, _ := get(t, page+"?"+form.Encode()); status != http.StatusOK || free() != 1 {
		t.Errorf("a GET, and what was refused, changed something: %d, %d units left", status, free())
	}
	if _, body := post(t, reading, url.Values{"rule": {"search"}, "key": {"alice"}}); strings.Contains(body, `value="reset"`) {
		t.Error("a page that only reads shows a button to reset")
	}
	mistake := url.Values{"rule": {"search"}, "key": {"alice"}, "do": {"reset"}, "cost": {"4"}}
	if status, _ := post(t, page, mistake); status != http.StatusBadRequest || free() != 1 {
		t.Errorf("a request that was refused reset the key: %d, %d units left", status, free())
	}
	_, body := post(t, page, url.Values{"rule": {"search"}, "key": {"alice"}})
	contains(t, body, "Reset alice of search")
	status, body := post(t, page, form, "Sec-Fetch-Site", "same-origin")
	if status != http.StatusOK || free() != 3 {
		t.Errorf("%d, %d units left", status, free())
	}
	contains(t, body, "Reset: the key is as if never used", "3 of 3")
}

// With HashKeys, no key is on the page or in memory.
func TestHashKeys(t *testing.T) {
	l, r := newLimiter(t)
	secret := []byte("a secret of the fleet")
	p, page := mounted(t, l, HottestKeys(), HashKeys(secret))
	secret[0] = 'x' // the page has its own copy
	allow(t, r, "alice@example.org", 5)
	_, body := get(t, page)
	hash := hashedWith([]byte("a secret of the fleet"))("alice@example.org").Text
	contains(t, body, hash)
	if strings.Contains(body, "alice") || strings.Contains(fmt.Sprintf("%+v", *p.hottest.entries[0]), "alice") {
		t.Error("the key itself is there")
	}
	_, body = post(t, page, url.Values{"rule": {"search"}, "key": {"alice@example.org"}})
	contains(t, body, `Key <span class="key">`+hash, "would be denied")
	if _, err := New(l, HashKeys([]byte("short"))); !errors.Is(err, limit.ErrInvalidOption) || !strings.Contains(err.Error(), "5 bytes") {
		t.Error(err)
	}
}

func TestOutage(t *testing.T) {
	server := redistest.Start(t)
	l, err := tiered.New(server.Client(t), tiered.Logger(slog.New(slog.NewTextHandler(io.Discard, nil))))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r, err := l.Rule("search", limit.PerHour(3))
	if err != nil {
		t.Fatal(err)
	}
	_, page := mounted(t, l, AllowReset())
	server.Kill()
	for deadline := time.Now().Add(20 * time.Second); !l.Degraded(); {
		if time.Now().After(deadline) {
			t.Fatal("the breaker stays closed")
		}
		allow(t, r, "alice", 1)
	}
	allow(t, r, "alice", 1)
	_, body := get(t, page)
	contains(t, body, "Redis counts as lost", `<p class="state outage"`, "fallback")
	_, body = post(t, page, url.Values{"rule": {"search"}, "key": {"alice"}})
	contains(t, body, "tier “fallback”")
	// A reset needs Redis. That it is lost is no mistake of the person.
	status, body := post(t, page, url.Values{"rule": {"search"}, "key": {"alice"}, "do": {"reset"}})
	if status != http.StatusServiceUnavailable {
		t.Errorf("a reset without Redis got status %d", status)
	}
	contains(t, body, "resetting a key")
}

func TestOneUnitIsNotMany(t *testing.T) {
	for units, want := range map[int64]string{1: "<dd>1 unit of 1 key</dd>", 2: "<dd>2 units of 1 key</dd>"} {
		var body strings.Builder
		s := shown{Snapshot: inspect.Snapshot{Health: inspect.Health{WaitingUnits: units, WaitingKeys: 1}}}
		if err := templates.ExecuteTemplate(&body, "live", s); err != nil {
			t.Fatal(err)
		}
		contains(t, body.String(), want)
	}
}

// However the page is mounted, the addresses on it lead to the right places.
func TestMounts(t *testing.T) {
	l, _ := newLimiter(t)
	p, _ := mounted(t, l)
	for prefix, handler := range map[string]http.Handler{
		"/": p, "/limits/": p, "/stripped/": http.StripPrefix("/stripped", p), "/bare/": http.StripPrefix("/bare/", p),
	} {
		mux := http.NewServeMux()
		mux.Handle(prefix, handler)
		server := httptest.NewServer(mux)
		for _, name := range []string{"", "live.js", "live.css"} {
			if status, _ := get(t, server.URL+prefix+name); status != http.StatusOK {
				t.Errorf("%s%s: %d", prefix, name, status)
			}
		}
		if status, _ := event(t, server.URL+prefix+"events"); status != http.StatusOK {
			t.Errorf("%sevents: %d", prefix, status)
		}
		server.CloseClientConnections()
		server.Close()
	}
}

func TestNilLimiter(t *testing.T) {
	if _, err := New(nil); !errors.Is(err, limit.ErrInvalidOption) {
		t.Error(err)
	}
}

// A browser takes a site whose name is made to resolve to this server for the page's own origin. Only
// the Host header tells its requests apart. They must neither read nor change anything.
func TestRebinding(t *testing.T) {
	l, r := newLimiter(t)
	allow(t, r, "alice", 2)
	form := url.Values{"rule": {"search"}, "key": {"alice"}, "do": {"reset"}}
	ask := func(page, method, host string) (int, string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // the stream of events would never end
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, method, page, strings.NewReader(form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		request.Host = host
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		request.Header.Set("Sec-Fetch-Site", "same-origin")
		request.Header.Set("Origin", "http://"+host)
		response, err := http.DefaultClient.Do(request)
		return read(t, response, err)
	}
	used := func() int64 {
		t.Helper()
		d, err := r.Peek(t.Context(), "alice", 1)
		if err != nil {
			t.Fatal(err)
		}
		return 3 - d.Remaining
	}
	_, closed := mounted(t, l, HottestKeys(), AllowReset())
	for _, path := range []string{"", "events", "live.js"} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			status, body := ask(closed+path, method, "attacker.example:8081")
			if status != http.StatusMisdirectedRequest || strings.Contains(body, "alice") || !strings.Contains(body, "livepage.Hosts") {
				t.Errorf("%s %q: %d %s", method, path, status, body)
			}
		}
	}
	if got := used(); got != 2 {
		t.Errorf("another site has reset the key: %d units are charged", got)
	}
	_, open := mounted(t, l, AllowReset(), Hosts("limits.example.org"))
	if status, body := ask(open, http.MethodPost, "limits.example.org"); status != http.StatusOK || used() != 0 {
		t.Errorf("under a name of its own: %d %s", status, body)
	}
	if _, err := New(l, Hosts("https://limits.example.org/")); !errors.Is(err, limit.ErrInvalidOption) {
		t.Error(err)
	}
}
