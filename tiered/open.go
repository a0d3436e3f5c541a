package tiered

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"math"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/tierlimit/tierlimit/internal/option"
	"github.com/tierlimit/tierlimit/internal/quietconn"
	"github.com/tierlimit/tierlimit/internal/redisurl"
	"github.com/tierlimit/tierlimit/limit"
)

// Open is [New] with its own client, made from options with the settings that a limiter needs; Close
// closes the client. Open distinguishes one node, Sentinel and Cluster as redis.NewUniversalClient does.
// If there is one address, it also asks the server: for a Cluster of several masters it makes a Cluster
// client, as if IsClusterMode were set. That takes at most a second, in addition to the time of New. If
// there is no answer, or if slots move away from a Cluster's only master later, the client stays a client
// of a single node, and this is logged. Set IsClusterMode if there may be a Cluster behind one address.
//
// Open makes these settings; make them in a client that you pass to New, too:
//
//   - ContextTimeoutEnabled: true. Otherwise a hung Redis holds each connection
//     for the read time-out (5 s) instead of the limiter's deadline. (New uses a
//     copy of the client with this setting; on a Cluster, copies of the nodes' clients.)
//   - MaxRetries: -1. The limiter never lets a charge be sent twice; retries of
//     other commands only delay the outage mode.
//   - DialTimeout: 1 s, DialerRetries: 1, unless set. The defaults add up to over 20 s. (A negative
//     DialTimeout is an error, because no connection could be made with it.)
//   - ReadTimeout: 1 s, or the limiter's deadline if that is longer, unless set. A Cluster's client asks any node
//     which master has which slots. With go-redis's 5 s, a client that happens to ask a node that hangs learns
//     so much later that a replica has taken over.
//   - MaintNotificationsConfig: disabled, unless set: most servers lack them.
//   - ReadOnly, RouteByLatency, RouteRandomly and IsClusterMode: off, if there is a MasterName. Only the master can
//     decide. With ReadOnly, go-redis's client of Sentinel asks a replica, which refuses every decision; with the
//     others it is a Cluster's client, which leaves goroutines and a connection to the Sentinel behind.
//   - Dialer: [Dialer], unless set. With it, processes with few callers at a time take up to two fifths
//     less processor time for a decision, and overloaded ones read answers in time. (New does the same
//     for the connections of a client without TLS.)
//
// The first Open of a process also sends go-redis's own log lines to the limiter's logger (option
// [Logger]) until the limiter is closed. By default go-redis writes them to standard error, in its own
// format. This setting applies to the whole process, including other clients. To change it, see
// [KeepLogOfRedis] and [LogOfRedis].
func Open(options *redis.UniversalOptions, limiterOptions ...Option) (*Limiter, error) {
	if options == nil {
		return nil, option.Invalid("Redis options are nil")
	}
	if err := checkPool(options); err != nil {
		return nil, err
	}
	if err := checkDialTimeout(options.DialTimeout); err != nil {
		return nil, err
	}
	c, err := configure(limiterOptions)
	if err != nil {
		return nil, err
	}
	c.ownsClient = true
	if !c.keepRedisLog {
		c.redisLog = redisLines.join(c.logger) // before there is a client
	}
	l, err := openWith(*options, c)
	if err != nil {
		redisLines.leave(c.redisLog)
	}
	return l, err
}

// checkPool rejects pool sizes with which go-redis would panic (on a Cluster in a goroutine of its own).
func checkPool(o *redis.UniversalOptions) error {
	if o.PoolSize < 0 {
		return option.Invalid("PoolSize %d (pool_size in a URL), must be at least 1, or 0 for the default", o.PoolSize)
	}
	if most := max(o.PoolSize, o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns); most > math.MaxInt32 {
		return option.Invalid("%d connections in a pool (pool_size and the like in a URL), must be at most %d", most, math.MaxInt32)
	}
	return nil
}

// checkDialTimeout rejects a time-out with which go-redis would give up every connection before it is made, so the
// limiter would never leave the outage. A URL can have 0 or -1, which for the other time-outs mean that there is none;
// go-redis turns both into -1.
func checkDialTimeout(d time.Duration) error {
	if d < 0 {
		return option.Invalid("DialTimeout %v (dial_timeout in a URL, where 0 means -1ns), must be above 0, or left out for the default", d)
	}
	return nil
}

// openWith is Open with the limiter's own options applied.
func openWith(o redis.UniversalOptions, c config) (*Limiter, error) {
	o.ContextTimeoutEnabled = true
	o.MaxRetries = -1
	o.DialTimeout = cmp.Or(o.DialTimeout, time.Second)
	o.DialerRetries = cmp.Or(o.DialerRetries, 1)
	o.ReadTimeout = cmp.Or(o.ReadTimeout, max(time.Second, c.deadline))
	o.MaintNotificationsConfig = cmp.Or(o.MaintNotificationsConfig, &maintnotifications.Config{Mode: maintnotifications.ModeDisabled})
	if o.MasterName != "" {
		o.ReadOnly, o.RouteByLatency, o.RouteRandomly, o.IsClusterMode = false, false, false, false
	}
	if o.Dialer == nil {
		o.Dialer = Dialer(o.DialTimeout, o.TLSConfig)
	}
	client, cluster := clientFor(o)
	l, err := start(client, c)
	if err != nil {
		_ = client.Close() // if the limiter has not closed it yet
		return nil, err
	}
	if cluster {
		l.log.Info("behind", "the address belongs to a Cluster, and all of its masters are used; set IsClusterMode to avoid this message", "masters", len(l.shards.InUse()))
	}
	return l, nil
}

// OpenURL is [Open] with the server's address as a URL, in the forms that go-redis reads:
//
//	redis://user:password@host:6379/0               one node, or a Cluster behind one address
//	rediss://user:password@host:6379                the same with TLS
//	unix://user:password@/path/to/redis.sock        a Unix socket
//	redis://host:6379?addr=other:6379               a Cluster, by several of its nodes
//	redis://host:26379?master_name=mymaster         Sentinel, whose addresses these are
//
// Other settings of the client may follow, like pool_size=50. Errors are those of Open. An error about
// the URL wraps [limit.ErrInvalidOption] and shows no part of the URL, since it may contain a password.
func OpenURL(url string, options ...Option) (*Limiter, error) {
	o, _, err := redisurl.Parse(url)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", limit.ErrInvalidOption, err)
	}
	return Open(o, options...)
}

// Dialer returns a function that connects to Redis, for the field Dialer in the options of go-redis's
// clients. On Linux, its connections differ from ordinary ones in four ways:
//
//   - They do not wake up the monitor thread of Go's runtime for each decision. In a process with few calls at a
//     time, this saves up to two fifths of the processor time of decisions.
//   - While other goroutines keep all processors busy, answers are read after each of their turns. Go itself would
//     look for answers only every 10 ms.
//   - Where Redis answers within 200 µs, for example on the same machine, a read polls for at most 200 µs before it
//     waits, as long as polling makes answers arrive sooner by at least a quarter. (Every 16th read does the opposite,
//     to measure that.) Where idle processors are slow to wake up, this halves the time of decisions that are made one
//     at a time. With a dozen decisions at a time it costs processor time.
//   - With TLS, they notice before sending that the server has closed them, for example after its timeout, CLIENT KILL
//     or a restart, and the limiter takes another one. go-redis by itself notices this only without TLS: the next
//     command on a closed TLS connection fails, and three failures in a row are an outage.
//
// On other systems and on 386, they are ordinary connections. Under the race detector, only the last
// point applies.
//
// If a goroutine computes for long after an answer, other goroutines may have to wait 10 ms longer for
// their turn. A hook of the client (DialHook) gets connections that are not of type *net.TCPConn, but
// implement [syscall.Conn]. With TLS, they are not of type *tls.Conn, and do not implement it.
//
// timeout and config should be the client's DialTimeout and TLSConfig. A timeout of 0 means no time-out,
// and a nil config means no TLS. [Open] uses Dialer by itself, and [New] needs it only for TLS.
func Dialer(timeout time.Duration, config *tls.Config) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return quietconn.Dialer(timeout, config)
}
