package httplimit

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"github.com/tierlimit/tierlimit/internal/keys"
	"github.com/tierlimit/tierlimit/limit"
)

// Proxies knows the reverse proxies in front of a service, and tells the address of
// the client behind them. It is immutable and safe for concurrent use.
type Proxies struct {
	header  string
	rfc7239 bool
	trusted []netip.Prefix
	unix    bool
}

// NewProxies says which header to read, and whom to believe it. The header is
// "Forwarded" (RFC 7239), "X-Forwarded-For", or another one that holds addresses,
// separated by commas, like "X-Real-IP". Only one is read: the one that your proxies
// append to, or set; any other is the client's to invent.
//
// trusted are the addresses and prefixes ("10.1.2.3", "10.0.0.0/8",
// "2001:db8::/48") of the proxies, all of them, and of nobody else: a client that can
// send from a trusted address can claim to be anyone. "unix" trusts connections by Unix
// socket.
//
// The header is read from the right, where each proxy adds whom it was called by, up
// to the first address that is not a proxy's. That is the client; what stands left
// of it is what the client wrote, and not looked at. At an entry that is no address
// ("unknown", say) the reading ends, and the proxy that wrote it counts as the
// client. A request that does not come from a trusted address is its sender's,
// whatever its headers claim.
//
// Errors wrap [limit.ErrInvalidOption].
func NewProxies(header string, trusted ...string) (*Proxies, error) {
	p := &Proxies{header: http.CanonicalHeaderKey(header)}
	p.rfc7239 = p.header == "Forwarded"
	if !isToken(header) {
		return nil, fmt.Errorf("%w: header %q of the proxies, must be a field name like X-Forwarded-For", limit.ErrInvalidOption, header)
	}
	if len(trusted) == 0 {
		return nil, fmt.Errorf("%w: no trusted proxies; without any, use ClientAddress", limit.ErrInvalidOption)
	}
	for _, text := range trusted {
		if text == "unix" {
			p.unix = true
			continue
		}
		prefix, err := parsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("%w: trusted proxy %q, must be an address, a prefix like 10.0.0.0/8, or unix", limit.ErrInvalidOption, text)
		}
		if prefix.Bits() == 0 {
			return nil, fmt.Errorf("%w: trusted proxy %q is everyone, so that any client could claim any address", limit.ErrInvalidOption, text)
		}
		p.trusted = append(p.trusted, prefix)
	}
	return p, nil
}

// parsePrefix reads an address or a prefix. Addresses are compared in their canonical
// form, in which IPv4 does not come inside IPv6.
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
	if addr := prefix.Addr(); addr.Is4In6() {
		return addr.Unmap().Prefix(prefix.Bits() - 96) // an error if it is less
	}
	return prefix.Masked(), nil
}

// ClientAddress is the client's address as a key, see [AddressKey]. It is a
// [KeyFunc].
func (p *Proxies) ClientAddress(r *http.Request) string { return AddressKey(p.Client(r)) }

// Client is the address of the client that made the request, for logs, or for keys
// of your own (networks larger than a /64, say). It is not valid if the connection
// has no address and nothing that can be believed told one.
func (p *Proxies) Client(r *http.Request) netip.Addr {
	client, ok := peer(r)
	if ok && !p.trusts(client) || !ok && !p.unix {
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
	for _, prefix := range p.trusted {
		if prefix.Contains(addr) {
			return true
		}
	}
	return false
}

// lastHop is the address in the last element of a line, and what stands before it,
// if more does.
func (p *Proxies) lastHop(line string) (hop netip.Addr, rest string, more, ok bool) {
	var element string
	if p.rfc7239 {
		rest, element, more = cutLastElement(line)
		if element, ok = forwardedFor(element); !ok {
			return netip.Addr{}, "", false, false
		}
	} else if i := strings.LastIndexByte(line, ','); i >= 0 {
		rest, element, more = line[:i], line[i+1:], true
	} else {
		element = line
	}
	hop, ok = parseNode(strings.Trim(element, " \t"))
	return hop, rest, more, ok
}

// peer is the address that the request's connection came from.
func peer(r *http.Request) (netip.Addr, bool) {
	if p, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		return keys.Canonical(p.Addr()), true
	}
	addr, err := netip.ParseAddr(r.RemoteAddr)
	return keys.Canonical(addr), err == nil
}
