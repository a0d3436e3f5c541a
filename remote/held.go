package remote

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// heldConns keeps connections of the client's pool from one trip to the next. To take a connection out of the pool,
// which checks whether the server has closed it, and to put it back takes a tenth of this process's time for a single
// decision.
//
// It keeps only connections that have just answered, and only for a short time. So the pool can still close old
// connections, move them to another server and detect dead ones, and nothing is sent after a pause to a server
// that has gone meanwhile. No connection is kept if the pool is small or nearly used up, because others need
// the connections more.
type heldConns struct {
	client *redis.Client // nil: no connection is kept
	each   [heldAtOnce]heldConn
}

// heldConn is one of the kept connections.
type heldConn struct {
	mu          sync.Mutex  // locked by the trip that uses the connection, guards the rest
	conn        *redis.Conn // nil: none
	taken, used int64       // local times: when it was taken from the pool, and when its last use began
	crowded     int64       // local time until which no connection is kept, see isCrowded
}

const (
	heldAtOnce = 4 // most processes have only one trip in flight, and few more than four
	holdAtMost = time.Second
	holdIdle   = 20 * time.Millisecond // most time between the starts of two trips; a busy process needs less
	// spareConns is the number of unused connections that a pool must have.
	spareConns = 4
)

// mayHold reports whether connections of a client may be taken out of its pool by a [redis.Conn]. go-redis panics if
// that Conn has to dial, and the client has a StreamingCredentialsProvider: only the client itself can give a
// connection new credentials.
func mayHold(client *redis.Client) bool { return client.Options().StreamingCredentialsProvider == nil }

// send sends commands, on a kept connection that no other trip uses, if there is one.
func (h *heldConns) send(ctx context.Context, cmds []redis.Cmder) error {
	for i := range h.each {
		if c := &h.each[i]; c.mu.TryLock() {
			defer c.mu.Unlock()
			return c.send(ctx, h.client, cmds)
		}
	}
	return send(ctx, h.client, cmds)
}

// returnAll gives the connections back; if forever is set, none is kept again. It returns false if one of them is in use.
func (h *heldConns) returnAll(forever bool) bool {
	all := true
	for i := range h.each {
		c := &h.each[i]
		if !c.mu.TryLock() {
			all = false
			continue
		}
		c.giveBack()
		if forever {
			c.crowded = math.MaxInt64
		}
		c.mu.Unlock()
	}
	return all
}

// send sends commands on the kept connection, which it may have to take from the client's pool first. The lock is held.
func (h *heldConn) send(ctx context.Context, client *redis.Client, cmds []redis.Cmder) error {
	now := localTime()
	if h.isDue(now) {
		h.giveBack()
	}
	taken := h.conn == nil
	if taken {
		if now < h.crowded || h.isCrowded(client, now, 0) {
			return send(ctx, client, cmds)
		}
		h.conn, h.taken = client.Conn(), now
	}
	h.used = now
	err := send(ctx, h.conn, cmds)
	// Others may have found the pool unused at the same moment: many limiters can share a client.
	if err != nil || taken && h.isCrowded(client, now, 1) {
		h.giveBack()
	}
	return err
}

// isCrowded reports whether the pool lacks spare connections. It does not count own, the connections in use
// here. If the pool is crowded, this is assumed for a while.
func (h *heldConn) isCrowded(client *redis.Client, now int64, own int) bool {
	stats := client.PoolStats()
	if inUse := int(stats.TotalConns) - int(stats.IdleConns) - own; inUse+spareConns < mostConns(client) {
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
