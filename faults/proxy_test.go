//go:build unix

package faults

import (
	"context"
	"encoding/json"
	"net"
	"strings"
	"testing"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// proxies stand between a client and servers, and disturb the traffic as networks do.
type proxies struct {
	t  testing.TB
	to map[string]*toxiproxy.Proxy // by server address
}

func startProxies(t testing.TB, servers ...string) *proxies {
	t.Helper()
	p := &proxies{t: t, to: make(map[string]*toxiproxy.Proxy)}
	api := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	for _, server := range servers {
		proxy := toxiproxy.NewProxy(api, server, "127.0.0.1:0", server)
		if err := proxy.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(proxy.Stop)
		p.to[server] = proxy
	}
	return p
}

// dial connects a client to the proxy in front of a server. (The nodes of a Cluster tell clients each other's own
// addresses.)
func (p *proxies) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if proxy := p.to[addr]; proxy != nil {
		addr = proxy.Listen
	}
	return (&net.Dialer{}).DialContext(ctx, network, addr)
}

// fault is what toxiproxy calls a toxic: a disturbance of one direction of the traffic.
type fault struct {
	Type       string         `json:"type"`
	Stream     string         `json:"stream"` // "upstream" is towards the server
	Attributes map[string]int `json:"attributes"`
}

// begin starts a fault on all connections, old and new.
func (p *proxies) begin(f fault) {
	p.t.Helper()
	encoded, err := json.Marshal(f)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, proxy := range p.to {
		if _, err := proxy.Toxics.AddToxicJson(strings.NewReader(string(encoded))); err != nil {
			p.t.Fatal(err)
		}
	}
}

// end ends all faults.
func (p *proxies) end() {
	for _, proxy := range p.to {
		proxy.Toxics.ResetToxics(context.Background())
	}
}
