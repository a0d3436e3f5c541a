package tiered

import (
	"context"
	"net"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// farConn is a connection on which each answer takes a round trip. It respects its read deadline.
type farConn struct {
	net.Conn
	roundTrip time.Duration
	deadline  time.Time
}

func (c *farConn) SetReadDeadline(t time.Time) error {
	c.deadline = t
	return c.Conn.SetReadDeadline(t)
}

func (c *farConn) Read(p []byte) (int, error) {
	if left := time.Until(c.deadline); !c.deadline.IsZero() && left < c.roundTrip {
		time.Sleep(left)
		return 0, os.ErrDeadlineExceeded
	}
	time.Sleep(c.roundTrip)
	return c.Conn.Read(p)
}

// The deadline leaves time for one round trip, but not for all round trips of a first call or a new connection.
const (
	farDeadline  = 190 * time.Millisecond
	farRoundTrip = 100 * time.Millisecond
)

// farAway makes a client's server look far away.
func farAway(o *redis.Options) { awayBy(farRoundTrip)(o) }

func awayBy(roundTrip time.Duration) func(*redis.Options) {
	return func(o *redis.Options) {
		dial := o.Dialer
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			return &farConn{Conn: conn, roundTrip: roundTrip}, err
		}
	}
}

// New waits for a Redis that is so far away that it has no time to measure the round trip several times.
func TestStartWithAVeryFarRedis(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		l := newLimiterOn(t, bubble.Client(t, awayBy(300*time.Millisecond)), redistest.Prefix(), Deadline(time.Second))
		if state := l.State(); state != Healthy {
			t.Errorf("a limiter begins with the state %v", state)
		}
	})
}

// The first callers do not wait for the script to be loaded, because New has already loaded it.
func TestFirstDecisionOfAFarRedis(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		l := newLimiterOn(t, bubble.Client(t, farAway), redistest.Prefix(), Deadline(farDeadline))
		if d := mustAllow(t, newRule(t, l, "r", limit.PerHour(10)), "k", 1); d.Tier != limit.TierRedis {
			t.Errorf("%+v", d)
		}
	})
}

// If a heartbeat has to connect and is late for that reason, the next one uses its connection, and is in time.
func TestHeartbeatsOfAFarRedis(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		client := bubble.Client(t, farAway)
		l := newLimiterOn(t, client, redistest.Prefix(), Deadline(farDeadline))
		for client.PoolStats().IdleConns > 0 { // opens other connections until none is idle, as if trips used them
			other := client.Conn()
			defer other.Close()
			if err := other.Ping(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.shard.Heartbeat(farDeadline); err == nil {
			t.Error("the first heartbeat connected in time, so the second one shows nothing")
		}
		if err := l.shard.Heartbeat(farDeadline); err != nil {
			t.Errorf("the second heartbeat: %v", err)
		}
	})
}
