package tiered

import (
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/tierlimit/tierlimit/internal/option"
	"github.com/tierlimit/tierlimit/internal/redisurl"
	"github.com/tierlimit/tierlimit/limit"
)

// Open is [New] with a client of its own, made from options with the settings
// that a limiter needs; Close closes it. One node, Sentinel and Cluster are told
// apart as by redis.NewUniversalClient; and where there is one address, by asking the server: a
// Cluster of several masters gets a Cluster's client, as if IsClusterMode were set. That takes a
// second at most, before the time that New takes. If there is no answer, or if slots
// move away from a Cluster's only master later, the client stays one of one node, and the
// log says so: where there may be a Cluster behind one address, set IsClusterMode.
//
// What Open sets, and what to set in a client handed to New:
//
//   - ContextTimeoutEnabled: true. Otherwise a hung Redis holds each connection
//     for the read time-out (5 s) instead of the limiter's deadline. (New does so by
//     itself for its own use of a client of one node, which stays as it is.)
//   - MaxRetries: -1. The limiter never lets a charge be sent twice; retries of
//     the rest only delay the outage mode.
//   - DialTimeout: 1 s, DialerRetries: 1, where not set. The defaults add up to
//     over 20 s.
//   - MaintNotificationsConfig: disabled, where not set: most servers lack them.
//
// The first Open of a process also sends what go-redis itself logs to the limiter's logger (option
// [Logger]), until the limiter is closed: instead of to standard error, in a form of its own. That
// is one setting for the whole process, other clients included: see [KeepLogOfRedis] and
// [LogOfRedis] to decide otherwise.
func Open(options *redis.UniversalOptions, limiterOptions ...Option) (*Limiter, error) {
	if options == nil {
		return nil, option.Invalid("Redis options are nil")
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

// openWith is Open, once the limiter's own options are read.
func openWith(o redis.UniversalOptions, c config) (*Limiter, error) {
	o.ContextTimeoutEnabled = true
	o.MaxRetries = -1
	if o.DialTimeout == 0 {
		o.DialTimeout = time.Second
	}
	if o.DialerRetries == 0 {
		o.DialerRetries = 1
	}
	if o.MaintNotificationsConfig == nil {
		o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	}
	client, cluster := behind(o)
	l, err := start(client, c)
	if err != nil {
		return nil, errors.Join(err, ignoreClosed(client.Close()))
	}
	if cluster {
		l.log.Info("behind", "the address is one of a Cluster, whose masters are all asked; set IsClusterMode to say so", "masters", len(l.shards.InUse()))
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
// Other settings of the client may follow, like pool_size=50. Errors are those of Open; one
// about the URL wraps [limit.ErrInvalidOption] and shows no part of it, since it may hold a
// password.
func OpenURL(url string, options ...Option) (*Limiter, error) {
	o, _, err := redisurl.Parse(url)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", limit.ErrInvalidOption, err)
	}
	return Open(o, options...)
}

// ignoreClosed drops the error of closing a client that New has closed already.
func ignoreClosed(err error) error {
	if errors.Is(err, redis.ErrClosed) {
		return nil
	}
	return err
}
