// Package keys makes keys out of what a request tells, so that no two different
// things share a key. The middlewares for HTTP and gRPC have it in common.
package keys

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/tierlimit/tierlimit/limit"
)

// Join joins parts into one key. Different lists of parts give different keys,
// whatever bytes they hold: each part is preceded by its length. A part may be
// empty, but if all are, so is the result: the request has no key.
func Join(parts ...string) string {
	size := 0
	for _, part := range parts {
		size += len(part)
	}
	if size == 0 {
		return ""
	}
	var b strings.Builder
	b.Grow(size + 8*len(parts))
	var digits [20]byte
	for _, part := range parts {
		b.Write(strconv.AppendInt(digits[:0], int64(len(part)), 10))
		b.WriteByte(':')
		b.WriteString(part)
	}
	return b.String()
}

// Alternative is the key of the i-th of several ways to tell a key, so that what
// one way tells never equals what another does: an API key that reads like an
// address is not that address.
func Alternative(i int, key string) string { return strconv.Itoa(i) + ":" + key }

// none is the key that all requests without one share, long that of all whose key would be
// longer than a limiter takes.
const (
	none = "\x00"
	long = "\x00long"
)

// OrNone is the key, or one that all requests without a key share and that no
// other request has. So do those with a key that is too long: only who wants to has one.
func OrNone(key string) string {
	switch {
	case key == "":
		return none
	case len(key) >= limit.MaxKey:
		return long
	case key[0] == none[0]:
		return none + key
	}
	return key
}

// nat64 is the well-known prefix of IPv4 addresses in IPv6 (RFC 6052). All of the
// IPv4 internet would share its one /64.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// Canonical is the one form of an address that may come in several: an IPv4 address
// inside an IPv6 one is itself, and there is no zone, which whoever writes an
// address into a header could choose freely.
func Canonical(addr netip.Addr) netip.Addr {
	addr = addr.Unmap().WithZone("")
	if nat64.Contains(addr) {
		bytes := addr.As16()
		return netip.AddrFrom4([4]byte(bytes[12:]))
	}
	return addr
}

// Address is the key of an address: IPv4 as it is, IPv6 by its /64, the least that a
// network hands out to a customer, who can use all 2^64 addresses of it. "" if addr
// is not valid.
func Address(addr netip.Addr) string {
	addr = Canonical(addr)
	switch {
	case !addr.IsValid():
		return ""
	case addr.Is4():
		return addr.String()
	}
	var text [48]byte
	return string(netip.PrefixFrom(addr, 64).Masked().AppendTo(text[:0]))
}
