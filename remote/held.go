package remote

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// heldConn keeps a connection of the client's pool from one trip to the next. To take one out of
// the pool, which looks whether the server has closed it, and to put it back is a tenth of what a
// lone decision costs this process; and most processes have but one trip under way.
//
// Held is a connection that has just answered, and for a moment only: so what the pool is there for
// (ending old connections, moving them to another server, finding out dead ones) still
// happens, and after a pause nothing is sent to a server that has gone meanwhile. None is held
// of a pool that is small or nearly used up: others need them more.
type heldConn struct {
	client *redis.Client // nil: nothing is held

	mu          sync.Mutex  // held by the trip that uses the connection, guards the rest
	conn        *redis.Conn // nil: none
	taken, used int64       // local time: out of the pool, and last
	crowded     int64       // local time until which none is held
}

const (
	holdAtMost = time.Second
	holdIdle   = 20 * time.Millisecond // between two trips of a process that is busy
	// spareConns is how many more connections a pool must have than are in use.
	spareConns = 4
)

// process has a command executed, on the connection that is held if no other trip uses it.
func (h *heldConn) process(ctx context.Context, cmd redis.Cmder) error {
	if !h.mu.TryLock() {
		return h.client.Process(ctx, cmd)
	}
	defer h.mu.Unlock()
	now := localTime()
	if h.conn != nil && h.isDue(now) {
		h.giveBack()
	}
	if h.conn == nil {
		if now < h.crowded || h.isCrowded(now) {
			return h.client.Process(ctx, cmd)
		}
		h.conn, h.taken = h.client.Conn(), now
	}
	err := h.conn.Process(ctx, cmd)
	if h.used = localTime(); err != nil {
		h.giveBack()
	}
	return err
}

// isCrowded looks whether the pool has connections to spare. If not, that holds for a while.
func (h *heldConn) isCrowded(now int64) bool {
	stats := h.client.PoolStats()
	if inUse := int(stats.TotalConns) - int(stats.IdleConns); inUse+spareConns < h.client.Options().PoolSize {
		return false
	}
	h.crowded = now + holdAtMost.Microseconds()
	return true
}

// rest gives the connection back unless it is in use.
func (h *heldConn) rest() {
	if h.mu.TryLock() {
		h.giveBack()
		h.mu.Unlock()
	}
}

func (h *heldConn) isDue(now int64) bool {
	return now-h.used > holdIdle.Microseconds() || now-h.taken > holdAtMost.Microseconds()
}

// giveBack puts the connection into the pool again, or closes it if it is broken.
func (h *heldConn) giveBack() {
	if h.conn != nil {
		_ = h.conn.Close()
		h.conn = nil
	}
}
