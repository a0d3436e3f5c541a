package tiered

import (
	"encoding/json"
	"log/slog"
	"reflect"
	"strings"
	"testing"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// Stats in JSON name states and tiers, and are the same when they are read back.
func TestStatsInJSON(t *testing.T) {
	l, err := New(redistest.Shared(t).Client(t), Prefix(redistest.Prefix()), Logger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	mustAllow(t, l.MustRule("r", limit.PerMinute(2)), "k", 1)
	_ = l.Close()
	want := l.Stats()
	want.Since = want.Since.Round(0) // without the monotonic clock, which JSON does not have
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got Stats
	if err := json.Unmarshal(text, &got); err != nil || !got.Since.Equal(want.Since) {
		t.Fatalf("%s: %v", text, err)
	}
	got.Since = want.Since
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v was read as %+v", want, got)
	}
	for _, name := range []string{`"State":"healthy"`, `"settling":`, `"Tier":"fallback"`} {
		if !strings.Contains(string(text), name) {
			t.Errorf("%s has no %s", text, name)
		}
	}
	if err := json.Unmarshal([]byte(`"lost"`), new(State)); err == nil || !strings.Contains(err.Error(), "lost") {
		t.Error(err)
	}
}
