package remote

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// heldConn keeps a connection of the client's pool from one trip to the next. To take one out of
// the pool, which looks whether the server has closed it, and to put it back is a tenth of what a
// lone decision costs this process; and most processes have but one trip under way.
//
// Held is a connection that has just answered, and for a moment only: so what the pool is there for
// (ending old connections, moving them to another server, finding out dead ones) still
// happens, and after a pause nothing is sent to a server that has gone meanwhile.
type heldConn struct {
	client *redis.Client // nil: nothing is held
	conn   atomic.Pointer[pooledConn]
}

// pooledConn is a connection that was taken out of the pool, and used last, at a local time.
type pooledConn struct {
	conn        *redis.Conn
	taken, used int64
}

const (
	holdAtMost = time.Second
	holdIdle   = 20 * time.Millisecond // between two trips of a process that is busy
	// smallPool is the size of a pool that has no connection to spare.
	smallPool = 4
)

func (h *heldConn) init(client redis.UniversalClient) {
	if node, ok := client.(*redis.Client); ok && node.Options().PoolSize > smallPool {
		h.client = node
	}
}

// process has a command executed, on the connection that is held if no other trip has it.
func (h *heldConn) process(ctx context.Context, cmd redis.Cmder) error {
	c, now := h.conn.Swap(nil), localTime()
	if c != nil && c.isDue(now) {
		c.giveBack()
		c = nil
	}
	if c == nil {
		c = &pooledConn{conn: h.client.Conn(), taken: now}
	}
	err := c.conn.Process(ctx, cmd)
	c.used = localTime()
	if err != nil || !h.conn.CompareAndSwap(nil, c) {
		c.giveBack()
	}
	return err
}

// rest gives the connection back unless it is in use.
func (h *heldConn) rest() {
	if c := h.conn.Swap(nil); c != nil {
		c.giveBack()
	}
}

func (c *pooledConn) isDue(now int64) bool {
	return now-c.used > holdIdle.Microseconds() || now-c.taken > holdAtMost.Microseconds()
}

// giveBack puts the connection into the pool again, or closes it if it is broken.
func (c *pooledConn) giveBack() { _ = c.conn.Close() }
