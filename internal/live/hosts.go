package live

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// Hosts are the names under which a page may be requested, besides localhost and IP addresses. They stop
// DNS rebinding. In that attack, a name of another site is made to resolve to this server's address. In a
// browser that reaches this server, that site's scripts then have the page's own origin. But their
// requests still carry the other site's name in Host. An address in Host cannot be made to resolve to
// something else, so addresses are always accepted, on whatever interface the server listens.
type Hosts map[string]bool

// NewHosts checks names: host names without scheme, port or path.
func NewHosts(names ...string) (Hosts, error) {
	hosts := make(Hosts, len(names))
	for _, name := range names {
		host := plainHost(name)
		if host == "" || strings.ContainsAny(host, ":/@*?# \t[]") {
			return nil, fmt.Errorf("host %q, must be a host name without scheme, port or path, like limits.example.org", name)
		}
		hosts[host] = true
	}
	return hosts, nil
}

// Accept reports whether a request names the page by an address, as localhost, or by one of the hosts. If
// not, Accept answers with status 421 (Misdirected Request) and what to do. option says how the user adds
// a host.
func (h Hosts) Accept(w http.ResponseWriter, r *http.Request, option string) bool {
	host := plainHost((&url.URL{Host: r.Host}).Hostname())
	if _, err := netip.ParseAddr(host); err == nil || host == "localhost" || h[host] {
		return true
	}
	http.Error(w, fmt.Sprintf("this page is not served under the host name %q: use localhost or an IP address, or allow the name with %s", host, option), http.StatusMisdirectedRequest)
	return false
}

// plainHost returns a host name in the form in which names are compared: in lower case, and without the
// dot of the root.
func plainHost(host string) string {
	return strings.TrimSuffix(strings.ToLower(host), ".")
}
