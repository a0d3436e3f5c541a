// Package proxy is a proxy between a client and Redis that simulates faults of a network. It uses toxiproxy.
package proxy

import (
	"context"
	"fmt"
	"strings"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// Proxy forwards connections to a server. Stop ends all of them, which looks to clients as if the server had ended.
type Proxy struct{ *toxiproxy.Proxy }

// Start starts a proxy on loopback.
func Start(server string) (Proxy, error) {
	api := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := Proxy{toxiproxy.NewProxy(api, server, "127.0.0.1:0", server)}
	return p, p.Start()
}

// Addr returns the address at which the proxy listens.
func (p Proxy) Addr() string { return p.Listen }

// Drop keeps connections open and accepts new ones, but silently discards all data, in both directions.
func (p Proxy) Drop() error { return p.add("timeout", `{"timeout": 0}`) }

// Delay delays all data, in each direction, by ms milliseconds and up to jitter more.
func (p Proxy) Delay(ms, jitter int) error {
	return p.add("latency", fmt.Sprintf(`{"latency": %d, "jitter": %d}`, ms, jitter))
}

func (p Proxy) add(kind, attributes string) error {
	for _, stream := range []string{"upstream", "downstream"} {
		toxic := fmt.Sprintf(`{"name": "%s", "type": "%s", "stream": "%s", "attributes": %s}`, stream, kind, stream, attributes)
		if _, err := p.Toxics.AddToxicJson(strings.NewReader(toxic)); err != nil {
			return err
		}
	}
	return nil
}

// Heal ends the effect of Drop or Delay. Connections that have lost data are closed.
func (p Proxy) Heal() { p.Toxics.ResetToxics(context.Background()) }
