package httplimit

import (
	"context"
	"net/http"
	"net/netip"
	"path"
	"slices"
	"strings"

	"github.com/tierlimit/tierlimit/internal/keys"
)

// KeyFunc returns the key that a limit charges for a request, which identifies whose request it is.
// The key may have any bytes and any length; "" means that the request has none. All requests
// without a key share a quota of their own, so that leaving something out of a request does not
// evade a limit; with [FirstOf] they get another key instead.
//
// It is called once for each request, by many goroutines at a time.
type KeyFunc func(r *http.Request) string

// Everyone is a key that all requests share, for limits on all of them together.
func Everyone(*http.Request) string { return "all" }

// ClientAddress returns the address of the connection on which the request came: an IPv4 address as it is,
// and the /64 prefix of an IPv6 address, because that is the smallest block that a network assigns to a
// customer. It reads no headers, so behind a reverse proxy it returns the proxy's address; see [Proxies]. It
// uses r.RemoteAddr: do not use it behind a middleware that copies a header into that field.
func ClientAddress(r *http.Request) string {
	addr, _ := peer(r)
	return AddressKey(addr)
}

// AddressKey returns the key of an address: an IPv4 address itself, also if it is mapped into an
// IPv6 address, and the /64 prefix of other IPv6 addresses. It returns "" if addr is not valid.
func AddressKey(addr netip.Addr) string { return keys.Address(addr) }

// Header returns a key that is the first value of a header field, such as an API key. Anyone can
// send as many different values as they like, each with a quota of its own: use it for values that
// were checked before the limit, or limit the client's address as well.
func Header(name string) KeyFunc {
	name = http.CanonicalHeaderKey(name)
	if name == "Host" { // net/http keeps it elsewhere
		return func(r *http.Request) string { return r.Host }
	}
	return func(r *http.Request) string {
		if values := r.Header[name]; len(values) > 0 {
			return values[0]
		}
		return ""
	}
}

// Principal returns a key that is the user of a request, which an authentication before the limit
// has stored in the request's context. The function returns "" for nobody. Of nil Principal makes nil,
// which [Limit] refuses, as [Join] and [FirstOf] do of any.
func Principal(of func(context.Context) string) KeyFunc {
	if of == nil {
		return nil
	}
	return func(r *http.Request) string { return of(r.Context()) }
}

// Pattern returns a key that is the pattern that the request matches in mux, like "GET
// /items/{id}". There are few patterns, unlike paths, which a client may choose freely. If the
// middleware wraps handlers inside a mux instead of the mux, mux may be nil, because the pattern is
// known already (http.Request.Pattern). That one is also the key if no pattern of mux matches.
func Pattern(mux *http.ServeMux) KeyFunc {
	return func(r *http.Request) string {
		if mux != nil {
			if pattern := matched(mux, r); pattern != "" {
				return pattern
			}
		}
		return r.Pattern
	}
}

// matched returns the pattern that a request matches in mux, or "". If mux redirects the request to
// its path with a slash at the end, ServeMux.Handler may return that path instead of the pattern (as
// of Go 1.26, for the method CONNECT). A client could invent any number of them.
func matched(mux *http.ServeMux, r *http.Request) string {
	_, pattern := mux.Handler(r)
	if !strings.HasPrefix(pattern, "/") || pattern != path.Clean(r.URL.Path)+"/" {
		return pattern
	}
	target, redirected := *r.URL, *r
	redirected.URL = &target
	target.Path += "/"
	if target.RawPath != "" {
		target.RawPath += "/"
	}
	_, pattern = mux.Handler(&redirected)
	return pattern
}

// Join makes one key of several, such as principal and pattern: each combination has
// its own quota. Whatever their bytes, two different combinations never share a key.
func Join(parts ...KeyFunc) KeyFunc {
	if hasNil(parts) {
		return nil
	}
	return func(r *http.Request) string {
		var space [4]string
		values := space[:0]
		for _, part := range parts {
			values = append(values, part(r))
		}
		return keys.Join(values...)
	}
}

// FirstOf returns a key that is the first of several that the request has, such as the principal,
// or else the client's address. A value of one never equals a value of another.
func FirstOf(alternatives ...KeyFunc) KeyFunc {
	if hasNil(alternatives) {
		return nil
	}
	return func(r *http.Request) string {
		for i, alternative := range alternatives {
			if key := alternative(r); key != "" {
				return keys.Alternative(i, key)
			}
		}
		return ""
	}
}

func hasNil(parts []KeyFunc) bool {
	return slices.ContainsFunc(parts, func(part KeyFunc) bool { return part == nil })
}
