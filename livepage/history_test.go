package livepage

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/inspect"
	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// The history covers a minute, whatever came before it.
func TestHistoryIsOfAMinute(t *testing.T) {
	h, start := &history{}, time.Unix(1_800_000_000, 0)
	at := func(second int) moment {
		state := "healthy"
		if second >= 170 && second < 180 {
			state = "outage"
		}
		// Of ten requests a second, one is denied. A hundredth of all trips is slow.
		return moment{at: start.Add(time.Duration(second) * time.Second), state: state, allowed: uint64(9 * second), denied: uint64(second),
			bounds: []float64{0.001, 0.005, 0.05}, trips: []uint64{uint64(90 * second), uint64(9 * second), uint64(second), 0}}
	}
	if m := h.until(at(0)); m.Seconds != 0 || m.Bars != nil || m.TripP99 != "" {
		t.Errorf("nothing yet: %+v", m)
	}
	for second := range 201 {
		h.add(at(second))
	}
	m := h.until(at(200))
	if m.Seconds != 60 || m.Allowed != 540 || m.Denied != 60 || m.NotHealthy != 10 || m.TripP99 != "at most 5ms" || len(m.Bars) != kept {
		t.Errorf("%+v", m)
	}
	for i, b := range m.Bars {
		if b.X != i || b.Allowed != 90 || b.Denied != 10 || b.Up() != 0 || b.DeniedUp() != 90 {
			t.Fatalf("bar %d: %+v", i, b)
		}
	}
	slow := at(201)
	slow.trips[3] += 1000
	if m := h.until(slow); m.TripP99 != "more than 50ms" {
		t.Errorf("p99 %s", m.TripP99)
	}
}

// What a page shows of the present second is not written where the history is continued meanwhile.
func TestReadingTheHistoryLeavesItAlone(t *testing.T) {
	h := &history{moments: make([]moment, 0, 10)}
	h.add(moment{state: "healthy"})
	h.until(moment{state: "outage"})
	if next := h.moments[:2][1]; next.state != "" {
		t.Errorf("the history goes on with %+v", next)
	}
}

// The last minute keeps the decisions of a rule that is no longer in force, such as one that its file has left out.
func TestTheMinuteKeepsDecisionsOfRulesThatAreGone(t *testing.T) {
	l, stays := newLimiter(t)
	goes, err := l.PrepareRule("goes", limit.PerHour(9))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.PutInForceFrom("file", goes); err != nil {
		t.Fatal(err)
	}
	allow(t, goes, "alice", 5)
	p, _ := mounted(t, l)
	allow(t, goes, "alice", 2)
	allow(t, stays, "alice", 2)
	p.history.add(momentOf(p.inside.Snapshot()))
	if err := l.PutInForceFrom("file"); err != nil {
		t.Fatal(err)
	}
	allow(t, stays, "alice", 1)
	p.history.add(momentOf(p.inside.Snapshot()))
	m := p.history.until(momentOf(p.inside.Snapshot()))
	if m.Allowed != 5 || m.Denied != 0 || m.Bars[0].Allowed != 100 || m.Bars[1].Allowed != 25 {
		t.Errorf("%d allowed, %d denied, %+v; want 5, none, and bars of 4 and 1", m.Allowed, m.Denied, m.Bars)
	}
}

// The page says since when the state has been as it is, what failed, how many keys wait to be charged,
// and how the last minute was. After Close, the history does not grow.
func TestThePageSaysSinceWhenAndWhy(t *testing.T) {
	server := redistest.Start(t)
	l, err := tiered.New(server.Client(t), tiered.Deadline(500*time.Millisecond), tiered.RememberDenials(0), tiered.LedgerKeys(1000))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r := l.MustRule("search", limit.PerHour(100))
	p, page := mounted(t, l, AllowReset())
	allow(t, r, "alice", 1)
	_, body := get(t, page)
	contains(t, body, server.Addr(), "healthy", "Since", "Trips to Redis, p99", "at most ", "Waiting to be charged</dt><dd>nothing")
	server.Kill()
	redistest.Eventually(t, "the breaker opens", func() bool { allow(t, r, "alice", 1); return l.Degraded() })
	allow(t, r, "alice", 1)
	redistest.Eventually(t, "the outage is in the history", func() bool { // a sample is taken each second
		_, body = get(t, page)
		return strings.Contains(body, `class="bar outage"`)
	})
	contains(t, body, `<td class="text">outage</td>`, "connection refused", "of 1 key")
	if since := regexp.MustCompile(`<td class="text">\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC`).FindStringSubmatch(body); since == nil {
		t.Errorf("since when is not said:\n%s", body)
	}
	reset := url.Values{"rule": {"search"}, "key": {"alice"}, "do": {"reset"}}
	if status, body := post(t, page, reset); status == http.StatusOK || strings.Contains(body, "as if never used") {
		t.Errorf("a key was reset without Redis: %d", status)
	}
	p.Close()
	before := inspect.Of(l).Snapshot().At
	p.history.mu.Lock()
	defer p.history.mu.Unlock()
	if last := p.history.moments[len(p.history.moments)-1]; last.at.After(before) {
		t.Error("the page goes on looking after Close")
	}
}

// A rule that was gone between two snapshots is counted anew. Its rates are those of the new count.
func TestRatesOfARuleThatIsCountedAnew(t *testing.T) {
	snapshot := func(second int64, allowed, denied uint64) inspect.Snapshot {
		counts := []inspect.Count{{Allowed: allowed, Denied: denied}}
		return inspect.Snapshot{At: time.Unix(1_800_000_000+second, 0), Rules: []inspect.Rule{{Name: "r", Counts: counts}}}
	}
	all := compare(snapshot(0, 100, 0), snapshot(2, 4, 2))
	if len(all) != 1 || all[0].AllowedPerSecond != 2 || all[0].DeniedPerSecond != 1 {
		t.Errorf("%+v", all)
	}
}
