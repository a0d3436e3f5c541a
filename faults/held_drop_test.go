//go:build unix

package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/tiered"
)

// dropped is a holder in this process that can be ended as SIGKILL ends a process: from one moment to the next
// Redis hears nothing more from it, and it writes nothing more into its journal. Redis may still run commands that
// were on their way.
type dropped struct {
	*holder
	client *redis.Client
	stop   chan struct{}
	events *atomic.Int64 // events of all holders

	mu          sync.Mutex // guards the fields below
	dead        bool
	journal     journal
	connections map[net.Conn]struct{}
}

var errDead = errors.New("the holder is dead")

// startDropped starts a holder, and calls ended with its journal when it has ended.
func startDropped(t *testing.T, server *redistest.Server, prefix, name string, events *atomic.Int64, ended func(journal)) *dropped {
	t.Helper()
	d := &dropped{events: events, stop: make(chan struct{}), connections: make(map[net.Conn]struct{})}
	d.client = redis.NewClient(&redis.Options{Addr: server.Addr(), Dialer: d.dial, ContextTimeoutEnabled: true, DialerRetries: 1, MaxRetries: -1, DisableIdentity: true})
	l, err := tiered.New(d.client, holderOptions(prefix)...)
	if err != nil {
		t.Fatal(err)
	}
	d.holder = &holder{name: name, limiter: l, keys: manySlotKeys, write: d.write}
	if d.rules, err = openHolderRules(l); err != nil {
		t.Fatal(err)
	}
	go func() {
		d.run(d.stop)
		_ = d.close() // cannot tell Redis, as the holder is dead
		_ = d.client.Close()
		ended(d.journal)
	}()
	return d
}

func (d *dropped) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead {
		return nil, errors.Join(errDead, conn.Close())
	}
	d.connections[conn] = struct{}{}
	return conn, nil
}

func (d *dropped) write(e event) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead {
		return false
	}
	d.journal = append(d.journal, e)
	d.events.Add(1)
	return true
}

// drop ends the holder. The goroutines of its limiter go on for a moment without any connection.
func (d *dropped) drop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dead = true
	for conn := range d.connections {
		_ = conn.Close()
	}
	close(d.stop)
}

// Laws 1, 3, 12 and 13 for slots and holds: limiters end from one moment to the next, many times, whatever they are
// doing. They are in one process, so that there can be many.
func TestLaw13LimitersAreDropped(t *testing.T) {
	t.Parallel()
	server, prefix := redistest.Start(t), redistest.Prefix()
	var events atomic.Int64
	awaitEvents := func(more int64) {
		until := events.Load() + more
		redistest.Eventually(t, "slots are acquired and units held", func() bool { return events.Load() >= until })
	}
	o := outcome13{t: t, prefix: prefix, client: server.Client(t)}
	var mu sync.Mutex // guards o.journals
	var started sync.WaitGroup
	ended := func(j journal) {
		mu.Lock()
		defer mu.Unlock()
		o.journals = append(o.journals, j)
		started.Done()
	}
	running, count := make([]*dropped, 8), 0
	start := func(place int) {
		count++
		started.Add(1)
		running[place] = startDropped(t, server, prefix, fmt.Sprint("d", count), &events, ended)
	}
	for i := range running {
		start(i)
	}
	for range kills(t, 100, func(all int) int { return all - all/20 }) {
		awaitEvents(1 + rand.Int64N(60))
		place := rand.IntN(len(running))
		running[place].drop()
		start(place)
	}
	for _, d := range running {
		awaitEvents(60)
		d.drop()
	}
	o.ended = time.Now()
	started.Wait()
	t.Logf("%d limiters dropped", count)
	o.checkSlotsAndHolds()
}
