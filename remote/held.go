package remote

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// heldConn keeps a connection of the client's pool from one trip to the next. To take a connection out of the
// pool, which checks whether the server has closed it, and to put it back takes a tenth of this process's time
// for a single decision; and most processes have only one trip in flight.
//
// It keeps only a connection that has just answered, and only for a short time. So the pool can still close old
// connections, move them to another server and detect dead ones, and nothing is sent after a pause to a server
// that has gone meanwhile. No connection is kept if the pool is small or nearly used up, because others need
// the connection more.
type heldConn struct {
	client *redis.Client // nil: no connection is kept

	mu          sync.Mutex  // locked by the trip that uses the connection, guards the rest
	conn        *redis.Conn // nil: none
	taken, used int64       // local times: when it was taken from the pool, and when its last use began
	crowded     int64       // local time until which no connection is kept, see isCrowded
}

const (
	holdAtMost = time.Second
	holdIdle   = 20 * time.Millisecond // most time between the starts of two trips; a busy process needs less
	// spareConns is the number of unused connections that a pool must have.
	spareConns = 4
)

// send sends commands, on the kept connection if no other trip uses it.
func (h *heldConn) send(ctx context.Context, cmds []redis.Cmder) error {
	if !h.mu.TryLock() {
		return send(ctx, h.client, cmds)
	}
	defer h.mu.Unlock()
	now := localTime()
	if h.isDue(now) {
		h.giveBack()
	}
	taken := h.conn == nil
	if taken {
		if now < h.crowded || h.isCrowded(now, 0) {
			return send(ctx, h.client, cmds)
		}
		h.conn, h.taken = h.client.Conn(), now
	}
	h.used = now
	err := send(ctx, h.conn, cmds)
	// Others may have found the pool unused at the same moment: many limiters can share a client.
	if err != nil || taken && h.isCrowded(now, 1) {
		h.giveBack()
	}
	return err
}

// isCrowded reports whether the pool lacks spare connections. It does not count own, the connections in use
// here. If the pool is crowded, this is assumed for a while.
func (h *heldConn) isCrowded(now int64, own int) bool {
	stats := h.client.PoolStats()
	if inUse := int(stats.TotalConns) - int(stats.IdleConns) - own; inUse+spareConns < mostConns(h.client) {
		return false
	}
	h.crowded = now + holdAtMost.Microseconds()
	return true
}

// mostConns returns how many connections a client may have before further commands wait or fail. Beyond
// MaxActiveConns, which may be below PoolSize, commands do not wait but fail.
func mostConns(client *redis.Client) int {
	o := client.Options()
	if o.MaxActiveConns > 0 {
		return min(o.PoolSize, o.MaxActiveConns)
	}
	return o.PoolSize
}

// rest gives the connection back; if forever is set, no connection is kept again. It returns false if the
// connection is in use.
func (h *heldConn) rest(forever bool) bool {
	if !h.mu.TryLock() {
		return false
	}
	defer h.mu.Unlock()
	h.giveBack()
	if forever {
		h.crowded = math.MaxInt64
	}
	return true
}

func (h *heldConn) isDue(now int64) bool {
	return now-h.used > holdIdle.Microseconds() || now-h.taken > holdAtMost.Microseconds()
}

// giveBack returns the connection to the pool, or closes it if it is broken.
func (h *heldConn) giveBack() {
	if h.conn != nil {
		_ = h.conn.Close()
		h.conn = nil
	}
}
