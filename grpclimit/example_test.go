package grpclimit_test

import (
	"context"
	"fmt"
	"net"
	"net/http"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/tierlimit/tierlimit/grpclimit"
	"github.com/tierlimit/tierlimit/httplimit"
)

// Behind a proxy, the key is the address that the proxy forwards. It counts only if the connection
// comes from a trusted proxy.
func ExampleKeyFunc_proxies() {
	proxies, err := httplimit.NewProxies("X-Forwarded-For", "10.0.0.0/8")
	if err != nil {
		panic(err)
	}
	var client grpclimit.KeyFunc = func(ctx context.Context, _ string) string {
		p, ok := peer.FromContext(ctx)
		if !ok {
			return ""
		}
		forwarded := metadata.ValueFromIncomingContext(ctx, "x-forwarded-for")
		return proxies.ClientAddress(&http.Request{RemoteAddr: p.Addr.String(), Header: http.Header{"X-Forwarded-For": forwarded}})
	}

	call := metadata.NewIncomingContext(context.Background(), metadata.Pairs("x-forwarded-for", "198.51.100.1, 192.0.2.7"))
	for _, from := range []string{"10.1.2.3", "203.0.113.9"} {
		address := &net.TCPAddr{IP: net.ParseIP(from), Port: 50051}
		fmt.Println(client(peer.NewContext(call, &peer.Peer{Addr: address}), "/shop.v1.Search/Query"))
	}
	// Output:
	// 192.0.2.7
	// 203.0.113.9
}
