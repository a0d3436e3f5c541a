// Package proxy stands between a client and Redis, and does to what passes what networks do. It is
// toxiproxy.
package proxy

import (
	"context"
	"fmt"
	"strings"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// Proxy passes connections on to a server. Stop ends them all, which looks like the server's end
// to who is connected.
type Proxy struct{ *toxiproxy.Proxy }

// Start starts a proxy on loopback.
func Start(server string) (Proxy, error) {
	api := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := Proxy{toxiproxy.NewProxy(api, server, "127.0.0.1:0", server)}
	return p, p.Start()
}

// Addr is the address that it listens at.
func (p Proxy) Addr() string { return p.Listen }

// Drop lets connections stand and be made, and silently loses what is sent, both ways.
func (p Proxy) Drop() error { return p.add("timeout", `{"timeout": 0}`) }

// Delay holds up what is sent, each way, by so many ms and up to that much more.
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

// Heal takes away what Drop or Delay did. Connections that lost something are closed.
func (p Proxy) Heal() { p.Toxics.ResetToxics(context.Background()) }
