package serve

import (
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

// slowPath is a way to Redis on which answers are late.
type slowPath struct {
	listener net.Listener
	late     atomic.Int64 // by so many ns
}

func startSlowPath(t *testing.T, redis string) *slowPath {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	p := &slowPath{listener: listener}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", redis)
			if err != nil {
				_ = client.Close()
				continue
			}
			go func() {
				_, _ = io.Copy(server, client)
				_ = server.Close()
			}()
			go p.answers(client, server)
		}
	}()
	return p
}

// answers passes each piece of an answer on when it is due, and meanwhile reads the next.
func (p *slowPath) answers(client, server net.Conn) {
	type piece struct {
		text []byte
		due  time.Time
	}
	pieces := make(chan piece, 1000)
	go func() {
		defer client.Close()
		for next := range pieces {
			time.Sleep(time.Until(next.due))
			_, _ = client.Write(next.text)
		}
	}()
	defer close(pieces)
	for {
		text := make([]byte, 64<<10)
		n, err := server.Read(text)
		if err != nil {
			return
		}
		pieces <- piece{text[:n], time.Now().Add(time.Duration(p.late.Load()))}
	}
}

func (p *slowPath) addr() string          { return p.listener.Addr().String() }
func (p *slowPath) delay(d time.Duration) { p.late.Store(int64(d)) }

// A Redis that answers too late makes no error, and nobody waits for its answers; when it is in time
// again, it decides again.
func TestSlowRedis(t *testing.T) {
	const deadline, late = 200 * time.Millisecond, 2 * time.Second
	redis := startSlowPath(t, redistest.Start(t).Addr())
	server := startOn(t, redis.addr(), configDir(t, lossy), "TIERLIMIT_DEADLINE="+deadline.String())
	client := server.client(t)
	expect(t, client, asking("d counted=a"), "OK: OK 39")
	redis.delay(late)
	for range 20 {
		began := time.Now()
		a := ask(t, client, asking("d counted=a log=a"))
		if a.err != nil {
			t.Fatal(a.err)
		}
		if took := time.Since(began); took >= late { // of trips, there are two at most
			t.Errorf("a decision took %v: it has waited for Redis", took)
		}
	}
	if server.stats.Degraded.Load() < 20 {
		t.Errorf("%d of 20 requests were decided without Redis", server.stats.Degraded.Load())
	}
	redis.delay(0)
	redistest.Eventually(t, "Redis decides again", func() bool { return !server.limiters.All.Degraded() })
	if a := ask(t, client, asking("d counted=other")); a.err != nil {
		t.Error(a.err)
	}
}
