package demo

import (
	"io"
	"net"
	"sync"
)

// wire is an instance's connection to Redis, which can be cut. While it is cut, open connections end,
// and new ones end at once. It is safe for concurrent use.
type wire struct {
	listener net.Listener
	dial     func() (net.Conn, error)
	running  sync.WaitGroup

	mu    sync.Mutex // guards the fields below
	cut   bool
	conns map[net.Conn]bool
}

func newWire(dial func() (net.Conn, error)) (*wire, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w := &wire{listener: listener, dial: dial, conns: make(map[net.Conn]bool)}
	w.running.Go(w.accept)
	return w, nil
}

func (w *wire) addr() string { return w.listener.Addr().String() }

func (w *wire) set(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = cut
	if cut {
		for conn := range w.conns {
			_ = conn.Close()
		}
	}
}

func (w *wire) isCut() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cut
}

// close ends the wire for good.
func (w *wire) close() {
	_ = w.listener.Close()
	w.set(true)
	w.running.Wait()
}

func (w *wire) accept() {
	for {
		near, err := w.listener.Accept()
		if err != nil {
			return // closed
		}
		w.running.Go(func() { w.connect(near) })
	}
}

func (w *wire) connect(near net.Conn) {
	defer near.Close()
	if !w.add(near) {
		return
	}
	defer w.remove(near)
	far, err := w.dial()
	if err != nil {
		return
	}
	defer far.Close()
	if !w.add(far) {
		return
	}
	defer w.remove(far)
	back := make(chan struct{})
	go func() {
		defer close(back)
		pass(near, far)
	}()
	pass(far, near)
	<-back
}

// add registers a connection. It returns false if the wire is cut.
func (w *wire) add(conn net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut {
		return false
	}
	w.conns[conn] = true
	return true
}

func (w *wire) remove(conn net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.conns, conn)
}

// pass copies data until either side ends, and then closes both connections.
func pass(to, from net.Conn) {
	_, _ = io.Copy(to, from) // an error ends the copy like a closed connection
	_ = to.Close()
	_ = from.Close()
}
