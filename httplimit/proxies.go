package httplimit

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/tierlimit/tierlimit/internal/keys"
	"github.com/tierlimit/tierlimit/internal/option"
)

// Proxies determines the address of the client behind a service's reverse proxies. It is immutable
// and safe for concurrent use.
type Proxies struct {
	header  string
	rfc7239 bool
	trusted []netip.Prefix
	unix    bool
}

// NewProxies returns Proxies that read the given header from trusted addresses. The header is
// "Forwarded" (RFC 7239), "X-Forwarded-For", or another one with addresses separated by commas, like
// "X-Real-IP". Name the header that your proxies append to, or set. Only that header is read, because
// clients can invent any other.
//
// trusted are the addresses and prefixes ("10.1.2.3", "10.0.0.0/8", "2001:db8::/48") of all
// proxies, and of nobody else: a client that can send from a trusted address can claim to be
// anyone. "unix" trusts connections by Unix socket.
//
// The header is read from the right, where each proxy appends the address that it was called from, up
// to the first address that is not a proxy's. That address is the client; entries to the left of it may
// come from the client itself and are ignored. If an entry is not an address (for example, "unknown"),
// the proxy that wrote it counts as the client. If a request does not come from a trusted address, its
// sender is the client, whatever its headers say.
//
// Errors wrap [limit.ErrInvalidOption].
func NewProxies(header string, trusted ...string) (*Proxies, error) {
	p := &Proxies{header: http.CanonicalHeaderKey(header)}
	p.rfc7239 = p.header == "Forwarded"
	if !isToken(header) {
		return nil, option.Invalid("proxy header %q, must be a field name like X-Forwarded-For", header)
	}
	if len(trusted) == 0 {
		return nil, option.Invalid("no trusted proxies; without any, use ClientAddress")
	}
	for _, text := range trusted {
		if text == "unix" {
			p.unix = true
			continue
		}
		prefix, err := parsePrefix(text)
		if err != nil {
			return nil, option.Invalid("trusted proxy %q, must be an address, a prefix like 10.0.0.0/8, or unix", text)
		}
		if prefix.Bits() == 0 {
			return nil, option.Invalid("trusted proxy %q includes all addresses, so any client could claim any address", text)
		}
		p.trusted = append(p.trusted, prefix)
	}
	return p, nil
}

// parsePrefix reads an address or a prefix. Addresses are compared in their canonical form, in
// which IPv4 is not mapped into IPv6.
func parsePrefix(text string) (netip.Prefix, error) {
	if !strings.Contains(text, "/") {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			return netip.Prefix{}, err
		}
		addr = keys.Canonical(addr)
		return addr.Prefix(addr.BitLen())
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, err
	}
	if addr := keys.Canonical(prefix.Addr()); addr.Is4() && prefix.Addr().Is6() {
		return addr.Prefix(prefix.Bits() - 96) // an error if the prefix is shorter than 96 bits
	}
	return prefix.Masked(), nil
}

// ClientAddress returns the client's address as a key, see [AddressKey]. It is a [KeyFunc].
func (p *Proxies) ClientAddress(r *http.Request) string { return AddressKey(p.Client(r)) }

// Client returns the address of the client that made the request, for logs or for your own keys, such
// as networks larger than a /64. The address is not valid if the connection has no address and no
// trusted proxy gave one.
func (p *Proxies) Client(r *http.Request) netip.Addr {
	client, ok := peer(r)
	if ok && !p.trusts(client) || !ok && !(p.unix && mayBeUnix(r)) {
		return client
	}
	lines := r.Header[p.header]
	for i := len(lines) - 1; i >= 0; i-- {
		for rest, more := lines[i], true; more; {
			var hop netip.Addr
			if hop, rest, more, ok = p.lastHop(rest); !ok {
				return client
			}
			if client = hop; !p.trusts(client) {
				return client
			}
		}
	}
	return client
}

func (p *Proxies) trusts(addr netip.Addr) bool {
	return slices.ContainsFunc(p.trusted, func(trusted netip.Prefix) bool { return trusted.Contains(addr) })
}

// lastHop returns the address in the last element of a line, and the rest of the line before that
// element, if any.
func (p *Proxies) lastHop(line string) (hop netip.Addr, rest string, more, ok bool) {
	var element string
	if p.rfc7239 {
		rest, element, more = cutLastElement(line)
		element = forwardedFor(element)
	} else if i := strings.LastIndexByte(line, ','); i >= 0 {
		rest, element, more = line[:i], line[i+1:], true
	} else {
		element = line
	}
	hop, ok = parseNode(strings.Trim(element, " \t"))
	return hop, rest, more, ok
}

// mayBeUnix reports whether a request without an address may have come by Unix socket. Servers of
// net/http say on which address they received the connection. If that is not a Unix socket's, something
// other than the server has set r.RemoteAddr, perhaps to text from a client.
func mayBeUnix(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return !ok || local.Network() == "unix"
}

// peer returns the address that the request's connection came from.
func peer(r *http.Request) (netip.Addr, bool) {
	if p, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		return keys.Canonical(p.Addr()), true
	}
	addr, err := netip.ParseAddr(r.RemoteAddr)
	return keys.Canonical(addr), err == nil
}
