package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// proxy stands between one instance and Redis.
type proxy struct{ *toxiproxy.Proxy }

func startProxy(name, redis string) (proxy, error) {
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := proxy{toxiproxy.NewProxy(server, name, "127.0.0.1:0", redis)}
	return p, p.Start()
}

// drop lets connections stand and be made, and silently loses what is sent, both ways.
func (p proxy) drop() error { return p.add("timeout", `{"timeout": 0}`) }

// delay holds up what is sent, each way, by so many ms and up to that much more.
func (p proxy) delay(ms, jitter int) error {
	return p.add("latency", fmt.Sprintf(`{"latency": %d, "jitter": %d}`, ms, jitter))
}

func (p proxy) add(kind, attributes string) error {
	for _, stream := range []string{"upstream", "downstream"} {
		toxic := fmt.Sprintf(`{"name": "%s", "type": "%s", "stream": "%s", "attributes": %s}`, stream, kind, stream, attributes)
		if _, err := p.Toxics.AddToxicJson(strings.NewReader(toxic)); err != nil {
			return err
		}
	}
	return nil
}

// heal takes away what drop or delay did. Connections that lost something are closed.
func (p proxy) heal() { p.Toxics.ResetToxics(context.Background()) }
