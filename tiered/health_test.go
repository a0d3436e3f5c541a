package tiered

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/inspect"
	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// Each change of state is logged with the previous state and its duration, the address, and the error. The live
// page shows how long the state has lasted, the last error, the units and keys that wait to be charged, and how
// long trips take.
func TestChangesOfStateSayWhy(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var log lockedBuffer
	l := newLimiterOn(t, server.Client(t), "tl", Logger(slog.New(slog.NewJSONHandler(&log, nil))), RememberDenials(0))
	r := newRule(t, l, "r", limit.PerSecond(1000))
	inside := inspect.Of(l)
	ask := func() {
		if _, err := r.Allow(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
	}
	ask()
	began := time.Now()
	h := inside.Snapshot().Health
	if len(h.Masters) != 1 || h.Masters[0].State != "healthy" || h.Masters[0].Address != server.Addr() || h.Masters[0].LastError != "" || h.Masters[0].Since.After(began) {
		t.Fatalf("healthy: %+v", h)
	}
	trips := uint64(0)
	for _, n := range h.TripCounts {
		trips += n
	}
	if trips == 0 || len(h.TripCounts) != len(h.TripBounds)+1 {
		t.Errorf("trips: %v of %v", h.TripCounts, h.TripBounds)
	}

	server.Kill()
	redistest.Eventually(t, "Redis counts as lost", func() bool { ask(); return l.State() == Outage })
	ask()
	if h = inside.Snapshot().Health; h.Masters[0].State != "outage" || h.Masters[0].Since.Before(began) || h.Masters[0].LastError == "" || h.Masters[0].LastErrorAt.Before(began) || h.WaitingUnits == 0 || h.WaitingKeys != 1 {
		t.Errorf("in the outage: %+v", h)
	}
	server.Restart()
	redistest.Eventually(t, "Redis decides again", func() bool { return l.State() == Healthy })
	redistest.Eventually(t, "it is logged", func() bool { return strings.Contains(log.String(), "Redis decides again") })

	type line struct {
		Msg, Was, Address, Error string
		Lasted                   time.Duration
		UnwellFor                time.Duration `json:"unwell_for"`
	}
	seen := make(map[string]line)
	for text := range strings.Lines(log.String()) {
		var got line
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatal(err)
		}
		for _, begins := range []string{"Redis counts as lost", "until Redis is stable", "Redis decides again"} {
			if strings.HasPrefix(got.Msg, "tierlimit: "+begins) {
				seen[begins] = got
			}
		}
	}
	for begins, was := range map[string]string{"Redis counts as lost": "healthy", "until Redis is stable": "outage", "Redis decides again": "settling"} {
		got := seen[begins]
		if got.Was != was || got.Address != server.Addr() || got.Error == "" || got.Lasted <= 0 {
			t.Errorf("%q: %+v", begins, got)
		}
	}
	if end := seen["Redis decides again"]; end.UnwellFor < end.Lasted {
		t.Errorf("not healthy for %v, of which it settled for %v", end.UnwellFor, end.Lasted)
	}
}
