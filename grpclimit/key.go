package grpclimit

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/tierlimit/tierlimit/internal/keys"
)

// KeyFunc returns the key that a limit charges for a call. The key identifies whose call it is, and may
// have any bytes and any length. method is the full name, like "/shop.v1.Search/Query". An empty key
// means that the call has none. All calls without a key share a quota of their own, so that a client
// cannot evade a limit by leaving something out. With [FirstOf], such calls get another key instead.
type KeyFunc func(ctx context.Context, method string) string

// Everyone is a key that all calls share, for limits on all of them together.
func Everyone(context.Context, string) string { return "all" }

// Peer is the address that a call's connection comes from, or its /64 prefix for IPv6. Behind a proxy,
// that is the proxy's address: see the example of [KeyFunc]. Calls over anything but IP have no key.
func Peer(ctx context.Context, _ string) string {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return ""
	}
	if tcp, ok := p.Addr.(*net.TCPAddr); ok {
		return keys.Address(tcp.AddrPort().Addr())
	}
	addr, _ := netip.ParseAddrPort(p.Addr.String())
	return keys.Address(addr.Addr())
}

// Method is the call's full method name. A server applies limits only to methods that it knows, so
// there are few keys. But a server with a grpc.UnknownServiceHandler, such as a proxy, accepts every
// name: its clients can invent any number of methods, each with its own quota.
func Method(_ context.Context, method string) string { return method }

// Metadata returns a KeyFunc whose key is the first value of a metadata key of the call, such as an API
// key. Anyone can send any number of values, each with its own quota: use it for values that were
// checked before the limit, or limit the peer, too.
//
// If name cannot be that of a metadata key, for example because it is empty, Metadata returns nil, which [Limit]
// refuses: no call would have a key, and all of them would share one quota.
func Metadata(name string) KeyFunc {
	if !isMetadataKey(name) {
		return nil
	}
	return func(ctx context.Context, _ string) string {
		if values := metadata.ValueFromIncomingContext(ctx, name); len(values) > 0 {
			return values[0]
		}
		return ""
	}
}

// isMetadataKey reports whether gRPC could deliver a metadata key of this name. Names may be written in upper case, and
// those of HTTP/2 itself, such as :authority, begin with a colon.
func isMetadataKey(name string) bool {
	name = strings.TrimPrefix(name, ":")
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("_-.", r))
	})
}

// Principal returns a KeyFunc whose key is the user that an earlier authentication has stored in the
// call's context; of returns "" if there is no user. If of is nil, Principal returns nil, which [Limit]
// refuses. [Join] and [FirstOf] return nil if any argument is, or if there is none.
func Principal(of func(context.Context) string) KeyFunc {
	if of == nil {
		return nil
	}
	return func(ctx context.Context, _ string) string { return of(ctx) }
}

// Join returns a KeyFunc that joins several keys into one, such as principal and method: each
// combination has its own quota. Two different combinations never share a key, whatever bytes the parts
// contain.
func Join(parts ...KeyFunc) KeyFunc {
	if lacksOne(parts) {
		return nil
	}
	return func(ctx context.Context, method string) string {
		values := make([]string, len(parts))
		for i, part := range parts {
			values[i] = part(ctx, method)
		}
		return keys.Join(values...)
	}
}

// FirstOf returns a KeyFunc whose key is the first that the call has of several, such as the principal
// or, without one, the peer. A key from one alternative never equals a key from another.
func FirstOf(alternatives ...KeyFunc) KeyFunc {
	if lacksOne(alternatives) {
		return nil
	}
	return func(ctx context.Context, method string) string {
		for i, alternative := range alternatives {
			if key := alternative(ctx, method); key != "" {
				return keys.Alternative(i, key)
			}
		}
		return ""
	}
}

// lacksOne reports whether a function is missing. Without any, all calls would share one quota.
func lacksOne(parts []KeyFunc) bool {
	return len(parts) == 0 || slices.ContainsFunc(parts, func(part KeyFunc) bool { return part == nil })
}
