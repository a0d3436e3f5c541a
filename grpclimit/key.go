package grpclimit

import (
	"context"
	"net"
	"net/netip"
	"slices"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/tierlimit/tierlimit/internal/keys"
)

// KeyFunc returns the key that a limit charges for a call, which identifies whose call it is.
// method is the full name, like "/shop.v1.Search/Query". The key may have any bytes and any length;
// "" means that the call has none. All calls without a key share a quota of their own, so that
// leaving something out does not evade a limit; with [FirstOf] they get another key instead.
type KeyFunc func(ctx context.Context, method string) string

// Everyone is a key that all calls share, for limits on all of them together.
func Everyone(context.Context, string) string { return "all" }

// Peer is the address that a call's connection comes from: IPv4 as it is, IPv6 by its
// /64. Behind a proxy that is the proxy's: see the example of [KeyFunc]. Calls over anything but IP have
// no key.
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
// there are few. One with a grpc.UnknownServiceHandler, such as a proxy, knows all: there clients can
// invent any number of methods, each with a quota of its own.
func Method(_ context.Context, method string) string { return method }

// Metadata returns a key that is the first value of a metadata key of the call, such as an API key.
// Anyone can send as many different values as they like, each with a quota of its own: use it for
// values that were checked before the limit, or limit the peer as well.
func Metadata(name string) KeyFunc {
	return func(ctx context.Context, _ string) string {
		if values := metadata.ValueFromIncomingContext(ctx, name); len(values) > 0 {
			return values[0]
		}
		return ""
	}
}

// Principal returns a key that is the user of a call, which an authentication before the limit has
// stored in the context. The function returns "" for nobody. Of nil Principal makes nil, which [Limit]
// refuses, as [Join] and [FirstOf] do of any.
func Principal(of func(context.Context) string) KeyFunc {
	if of == nil {
		return nil
	}
	return func(ctx context.Context, _ string) string { return of(ctx) }
}

// Join makes one key of several, such as principal and method: each combination has
// its own quota. Whatever their bytes, two different combinations never share a key.
func Join(parts ...KeyFunc) KeyFunc {
	if hasNil(parts) {
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

// FirstOf returns a key that is the first of several that the call has, such as the principal, or
// else the peer. A value of one never equals a value of another.
func FirstOf(alternatives ...KeyFunc) KeyFunc {
	if hasNil(alternatives) {
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

func hasNil(parts []KeyFunc) bool {
	return slices.ContainsFunc(parts, func(part KeyFunc) bool { return part == nil })
}
