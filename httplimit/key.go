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

// KeyFunc returns the key that a limit charges for a request. The key identifies whose request it is,
// and may have any bytes and any length. An empty key means that the request has none. All requests
// without a key share a quota of their own, so that a client cannot evade a limit by leaving something
// out of a request. With [FirstOf], such requests get another key instead.
//
// A KeyFunc is called once for each request, by many goroutines at a time.
type KeyFunc func(r *http.Request) string

// Everyone is a key that all requests share, for limits on all of them together.
func Everyone(*http.Request) string { return "all" }

// ClientAddress returns the address of the connection on which the request came. IPv4 addresses are
// returned unchanged. For IPv6, it returns the /64 prefix, the smallest block that a network assigns to
// a customer. ClientAddress reads no headers, so behind a reverse proxy it returns the proxy's address;
// see [Proxies]. It uses r.RemoteAddr: do not use it behind a middleware that copies a header into that
// field.
func ClientAddress(r *http.Request) string {
	addr, _ := peer(r)
	return AddressKey(addr)
}

// AddressKey returns the key of an address. For an IPv4 address, also one inside an IPv6 address (mapped, or
// translated by NAT64 under 64:ff9b::/96), the key is the IPv4 address. For all other IPv6 addresses, it is
// the /64 prefix. The key is "" if addr is not valid.
func AddressKey(addr netip.Addr) string { return keys.Address(addr) }

// Header returns a KeyFunc whose key is the first value of a header field, such as an API key. Anyone
// can send any number of values, each with its own quota: use it for values that were checked before
// the limit, or limit the client's address, too.
//
// If name cannot be a field's name, for example because it is empty, Header returns nil, which [Limit] refuses:
// no request would have a key, and all of them would share one quota.
func Header(name string) KeyFunc {
	if !isToken(name) {
		return nil
	}
	name = http.CanonicalHeaderKey(name)
	if name == "Host" { // net/http keeps the Host header in a field of the request
		return func(r *http.Request) string { return r.Host }
	}
	return func(r *http.Request) string {
		if values := r.Header[name]; len(values) > 0 {
			return values[0]
		}
		return ""
	}
}

// Principal returns a KeyFunc whose key is the user that an earlier authentication has stored in the
// request's context; of returns "" if there is no user. If of is nil, Principal returns nil, which
// [Limit] refuses. [Join] and [FirstOf] return nil if any argument is, or if there is none.
func Principal(of func(context.Context) string) KeyFunc {
	if of == nil {
		return nil
	}
	return func(r *http.Request) string { return of(r.Context()) }
}

// Pattern returns a KeyFunc whose key is the pattern that the request matches in mux, like "GET
// /items/{id}". A mux has few patterns, whereas a client may choose any path. mux may be nil if the
// middleware wraps handlers inside a mux and not the mux itself, because the pattern is then known
// already (http.Request.Pattern). That known pattern is also the key if no pattern of mux matches.
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

// matched returns the pattern that a request matches in mux, or "" if there is none. If mux redirects
// the request to its path with a slash at the end, ServeMux.Handler may return that path instead of the
// pattern (in Go 1.26, for the method CONNECT). A client could invent any number of paths, so matched
// then looks up the redirected request.
func matched(mux *http.ServeMux, r *http.Request) string {
	_, pattern := mux.Handler(r)
	if pattern == "/" || !strings.HasPrefix(pattern, "/") || !strings.HasSuffix(pattern, "/") {
		return pattern
	}
	// If the request's path ends with an escaped slash, the redirect's path ends with two slashes.
	if strings.TrimRight(pattern, "/") != strings.TrimRight(path.Clean(r.URL.Path), "/") {
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

// Join returns a KeyFunc that joins several keys into one, such as principal and pattern: each
// combination has its own quota. Two different combinations never share a key, whatever bytes the parts
// contain.
func Join(parts ...KeyFunc) KeyFunc {
	if lacksOne(parts) {
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

// FirstOf returns a KeyFunc whose key is the first that the request has of several, such as the
// principal or, without one, the client's address. A key from one alternative never equals a key from
// another.
func FirstOf(alternatives ...KeyFunc) KeyFunc {
	if lacksOne(alternatives) {
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

// lacksOne reports whether a function is missing. Without any, all requests would share one quota.
func lacksOne(parts []KeyFunc) bool {
	return len(parts) == 0 || slices.ContainsFunc(parts, func(part KeyFunc) bool { return part == nil })
}
