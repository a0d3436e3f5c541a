package livepage

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// The page says what a rule on a dry run would decide, and what is wrong with a question about it, although the rule
// itself allows everything.
func TestAKeysStateUnderADryRun(t *testing.T) {
	l, _ := newLimiter(t)
	tried, err := l.Rule("tried", limit.PerHour(3), tiered.DryRun())
	if err != nil {
		t.Fatal(err)
	}
	_, page := mounted(t, l)
	allow(t, tried, "k", 4)
	_, body := post(t, page, url.Values{"rule": {"tried"}, "key": {"k"}})
	contains(t, body, "would be denied", "on a dry run", "0 of 3", "in 59m59.")
	_, body = post(t, page, url.Values{"rule": {"tried"}, "key": {"k"}, "limit": {"9/1h"}})
	contains(t, body, "would be allowed", "6 of 9", "<dd>now</dd>")
	for _, form := range []url.Values{{"rule": {"tried"}}, {"rule": {"tried"}, "key": {"k"}, "cost": {"4"}}} {
		if status, body := post(t, page, form); status != http.StatusBadRequest {
			t.Errorf("%v: %d %s", form, status, body)
		}
	}
}

// Units of a concurrency limit are free when they are given back, and nobody knows when that is.
func TestAKeysStateUnderAConcurrencyLimit(t *testing.T) {
	l, _ := newLimiter(t)
	inFlight, err := l.Rule("in-flight", limit.Concurrent(1))
	if err != nil {
		t.Fatal(err)
	}
	_, page := mounted(t, l)
	slot, _, err := inFlight.Acquire(t.Context(), "k", 1)
	if err != nil || slot == nil {
		t.Fatal(err)
	}
	defer slot.Release()
	_, body := post(t, page, url.Values{"rule": {"in-flight"}, "key": {"k"}})
	contains(t, body, "would be denied", "0 of 1", "<dd>when units are given back</dd>")
}
