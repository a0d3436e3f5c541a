package live

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A name that anyone could make resolve to this server is rejected, so that no other site's scripts get the page's
// origin. Addresses and configured names are accepted.
func TestHosts(t *testing.T) {
	hosts, err := NewHosts("Limits.example.org.", "tierlimit")
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]bool{
		"localhost": true, "localhost:8081": true, "LOCALHOST.:8081": true,
		"127.0.0.1": true, "127.0.0.1:8081": true, "127.8.9.10:1": true, "10.0.0.7:8081": true,
		"[::1]": true, "[::1]:8081": true, "[fe80::1%25eth0]:80": true,
		"limits.example.org": true, "LIMITS.example.org.:8443": true, "tierlimit:80": true,
		"": false, ":8081": false, "attacker.example": false, "attacker.example:8081": false,
		"localhost.attacker.example": false, "127.0.0.1.attacker.example:80": false, "attacker.example:127.0.0.1": false,
		"limits.example.org.attacker.example": false, "a.tierlimit": false, "2130706433": false, "127.1": false,
		"[::1": false, "::1]": false, "attacker.example[::1]": false, "[::1]attacker.example": false,
	} {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
		r.Host = host
		if got := hosts.Accept(w, r, "SETTING"); got != want {
			t.Errorf("%q: accepted: %v", host, got)
		}
		if !want && (w.Code != http.StatusMisdirectedRequest || !strings.Contains(w.Body.String(), "SETTING")) {
			t.Errorf("%q: %d %s", host, w.Code, w.Body)
		}
	}
	for _, name := range []string{"", ".", "http://a.example", "a.example:80", "a.example/debug", "*.example", "a b", "[::1]"} {
		if _, err := NewHosts(name); err == nil {
			t.Errorf("%q was taken", name)
		}
	}
}
