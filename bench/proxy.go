package main

import (
	"io"
	"net"
	"sync"
)

// proxy passes connections on to a server until it is cut, which looks like the
// server's end to who is connected.
type proxy struct {
	listener net.Listener
	server   string
	running  sync.WaitGroup

	mu    sync.Mutex // guards conns, nil once cut
	conns map[net.Conn]bool
}

func startProxy(server string) (*proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: listener, server: server, conns: make(map[net.Conn]bool)}
	p.running.Go(p.accept)
	return p, nil
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

// cut ends all connections and takes no new ones.
func (p *proxy) cut() {
	_ = p.listener.Close()
	p.mu.Lock()
	for conn := range p.conns {
		_ = conn.Close()
	}
	p.conns = nil
	p.mu.Unlock()
	p.running.Wait()
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // cut
		}
		server, err := net.Dial("tcp", p.server)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		if p.conns == nil {
			_, _ = client.Close(), server.Close()
		} else {
			p.conns[client], p.conns[server] = true, true
			p.running.Go(func() { pass(client, server) })
			p.running.Go(func() { pass(server, client) })
		}
		p.mu.Unlock()
	}
}

// pass copies until either side ends, and then ends the other.
func pass(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	_ = to.Close()
}
