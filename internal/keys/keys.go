// Package keys makes keys out of the properties of a request, so that no two different things share a
// key. The middleware for HTTP and gRPC share it.
package keys

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/tierlimit/tierlimit/limit"
)

// Join joins parts into one key. Different lists of parts give different keys, whatever bytes they
// contain, because each part is preceded by its length. A part may be empty. If all parts are empty, so
// is the result: the request has no key.
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

// Alternative returns the key that the i-th of several ways to find a key has found. Keys found in
// different ways are never equal: an API key that reads like an address is not that address.
func Alternative(i int, key string) string { return strconv.Itoa(i) + ":" + key }

// none is the key that all requests without a key share. long is the key that all requests share whose
// key would be longer than a limiter accepts.
const (
	none = "\x00"
	long = "\x00long"
)

// OrNone returns the key, in a form that differs from none and long. It returns none for an empty key and
// long for a key that is too long, so all such requests share a key. Only clients that want to have too
// long a key have one.
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

// nat64 is the well-known prefix of IPv4 addresses in IPv6 (RFC 6052). Without special treatment, the
// whole IPv4 internet would share the prefix's one /64.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// Canonical returns the canonical form of an address. An IPv4 address inside an IPv6 address becomes
// plain IPv4. The zone is removed, because a client that writes an address into a header could choose it
// freely.
func Canonical(addr netip.Addr) netip.Addr {
	addr = addr.Unmap().WithZone("")
	if nat64.Contains(addr) {
		bytes := addr.As16()
		return netip.AddrFrom4([4]byte(bytes[12:]))
	}
	return addr
}

// Address returns the key of an address: IPv4 as it is, and IPv6 by its /64. A /64 is the least that a
// network assigns to a customer, who can use all of its 2^64 addresses. Address returns "" if addr is not
// valid.
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
