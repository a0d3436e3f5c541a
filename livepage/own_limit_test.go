package livepage

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// For a key with a limit of its own, the page answers under that limit: the one that this process last
// applied to the key, or the one that is asked for. The answer says which limit it is.
func TestAKeyWithALimitOfItsOwn(t *testing.T) {
	l, r := newLimiter(t)
	gold, err := r.WithLimit(limit.PerHour(1000))
	if err != nil {
		t.Fatal(err)
	}
	_, page := mounted(t, l, AllowReset())
	look := func(form url.Values) string {
		t.Helper()
		form.Set("rule", "search")
		status, body := post(t, page, form)
		if status != http.StatusOK {
			t.Fatal(status, body)
		}
		return body
	}
	allow(t, r, "other", 1)
	allow(t, gold, "acme", 500)
	for range 9 {
		if _, err := l.AllowAll(t.Context(), tiered.Request{Rule: gold, Key: "acme", Cost: 1}); err != nil {
			t.Fatal(err)
		}
	}
	body := look(url.Values{"key": {"acme"}})
	contains(t, body, "would be allowed", "491 of 1,000", "1000/1h", "the last limit that this process used for the key")
	if strings.Contains(body, "knows of no limit of the key’s own") {
		t.Errorf("%s", body)
	}
	contains(t, look(url.Values{"key": {"acme"}, "cost": {"492"}}), "would be denied", "491 of 1,000")
	contains(t, look(url.Values{"key": {"other"}}), "would be allowed", "2 of 3", "3/1h", "the rule’s own limit")
	contains(t, look(url.Values{"key": {"acme"}, "limit": {"600/1h"}}), "91 of 600", "600/1h", "the limit that was entered", `value="600/1h"`)

	// Another process has not decided about the key, but there a user can state the limit.
	another, same := beside(t, l)
	_, elsewhere := mounted(t, another)
	if _, body := post(t, elsewhere, url.Values{"rule": {"search"}, "key": {"acme"}}); !strings.Contains(body, "would be denied") || !strings.Contains(body, "If the key has a limit of its own") {
		t.Errorf("%s", body)
	}
	_, body = post(t, elsewhere, url.Values{"rule": {"search"}, "key": {"acme"}, "limit": {"1000/1h"}})
	contains(t, body, "would be allowed", "491 of 1,000")
	if status, body := post(t, elsewhere, url.Values{"rule": {"search"}, "key": {"acme"}, "limit": {"1000"}}); status != http.StatusBadRequest || !strings.Contains(body, "has no &#34;/&#34;") {
		t.Error(status, body)
	}

	// If a key is back under the rule's own limit, the page answers under that limit.
	allow(t, same, "acme", 1)
	if _, body := post(t, elsewhere, url.Values{"rule": {"search"}, "key": {"acme"}}); !strings.Contains(body, "of 3<") {
		t.Errorf("%s", body)
	}
	allow(t, r, "acme", 1)
	contains(t, look(url.Values{"key": {"acme"}}), "would be denied", "0 of 3", "the rule’s own limit")

	// A reset under a limit also removes a remembered denial under that limit.
	allow(t, gold, "full", 1001)
	contains(t, look(url.Values{"key": {"full"}, "do": {"reset"}}), "Reset:", "1,000 of 1,000")
	if d, err := gold.Allow(t.Context(), "full"); err != nil || !d.Allowed {
		t.Errorf("after the reset: %+v, %v", d, err)
	}
}

// GCRA can grant its burst at once, so the page shows the burst as what is left, and names it with the
// algorithm.
func TestTheBurstIsShown(t *testing.T) {
	l, _ := newLimiter(t)
	if _, err := l.Rule("large", limit.PerHour(200_000)); err != nil {
		t.Fatal(err)
	}
	_, page := mounted(t, l)
	_, body := post(t, page, url.Values{"rule": {"large"}, "key": {"k"}})
	contains(t, body, "gcra:burst=100000", ">200000/1h<", "100,000 of 100,000")
}
