// Package redisurl reads the URL of a Redis: of one node, of a Cluster or of Sentinel. No error
// shows any part of it, since it may hold a password and parsers quote what they cannot read.
package redisurl

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

var (
	// ErrEmpty says that there is no URL.
	ErrEmpty = errors.New("the Redis URL is empty, must be like redis://127.0.0.1:6379")
	// ErrScheme says that the URL is one of something else.
	ErrScheme = errors.New("the Redis URL must begin with redis://, rediss:// or unix://, like redis://127.0.0.1:6379")
	// ErrUnreadable says that something in the URL is wrong.
	ErrUnreadable = errors.New("the Redis URL cannot be read; write it like redis://user:password@127.0.0.1:6379/0, " +
		"with what is special in a password as %23 and the like (it is not shown here: it may hold one)")
)

var schemes = []string{"redis", "rediss", "unix"}

// Parse returns the options of a client, and what to show to people: scheme, address and
// database. The forms are those of go-redis:
//
//	redis://user:password@host:6379/0               one node; rediss:// with TLS
//	unix://user:password@/path/to/redis.sock?db=0   one node on a Unix socket
//	redis://host:6379?addr=other:6379               a Cluster, by several of its nodes
//	redis://host:26379?master_name=mymaster         Sentinel, whose addresses these are
//
// and the query takes all that go-redis does, like pool_size.
func Parse(text string) (options *redis.UniversalOptions, shown string, err error) {
	scheme, _, _ := strings.Cut(text, "://")
	switch {
	case text == "":
		return nil, "", ErrEmpty
	case !slices.Contains(schemes, scheme):
		return nil, "", ErrScheme
	}
	u, err := url.Parse(text)
	if err != nil || u.Fragment != "" || strings.HasSuffix(text, "#") { // a # in a password ends the address too early
		return nil, "", ErrUnreadable
	}
	switch query := u.Query(); {
	case query.Has("master_name"):
		options, err = ofSentinel(text)
	case query.Has("addr"):
		options, err = ofCluster(text)
	default:
		options, err = ofNode(text)
	}
	if err != nil {
		return nil, "", ErrUnreadable
	}
	shown = fmt.Sprintf("%s://%s/%d", scheme, strings.Join(options.Addrs, ","), options.DB)
	return options, shown, nil
}

func ofNode(text string) (*redis.UniversalOptions, error) {
	o, err := redis.ParseURL(text)
	if err != nil {
		return nil, err
	}
	return &redis.UniversalOptions{
		Addrs: []string{o.Addr}, DB: o.DB, ClientName: o.ClientName, Protocol: o.Protocol, Username: o.Username, Password: o.Password, TLSConfig: o.TLSConfig,
		MaxRetries: o.MaxRetries, MinRetryBackoff: o.MinRetryBackoff, MaxRetryBackoff: o.MaxRetryBackoff,
		DialTimeout: o.DialTimeout, DialerRetries: o.DialerRetries, DialerRetryTimeout: o.DialerRetryTimeout, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout,
		PoolFIFO: o.PoolFIFO, PoolSize: o.PoolSize, PoolTimeout: o.PoolTimeout, MaxConcurrentDials: o.MaxConcurrentDials, PipelinePoolSize: o.PipelinePoolSize,
		MinIdleConns: o.MinIdleConns, MaxIdleConns: o.MaxIdleConns, MaxActiveConns: o.MaxActiveConns,
		ConnMaxIdleTime: o.ConnMaxIdleTime, ConnMaxLifetime: o.ConnMaxLifetime, ConnMaxLifetimeJitter: o.ConnMaxLifetimeJitter,
		DisableIdentity: o.DisableIdentity, IdentitySuffix: o.IdentitySuffix,
	}, nil
}

func ofCluster(text string) (*redis.UniversalOptions, error) {
	o, err := redis.ParseClusterURL(text)
	if err != nil {
		return nil, err
	}
	return &redis.UniversalOptions{
		Addrs: o.Addrs, IsClusterMode: true, ClientName: o.ClientName, Protocol: o.Protocol, Username: o.Username, Password: o.Password, TLSConfig: o.TLSConfig,
		MaxRetries: o.MaxRetries, MinRetryBackoff: o.MinRetryBackoff, MaxRetryBackoff: o.MaxRetryBackoff, MaxRedirects: o.MaxRedirects,
		DialTimeout: o.DialTimeout, DialerRetries: o.DialerRetries, DialerRetryTimeout: o.DialerRetryTimeout, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout,
		PoolFIFO: o.PoolFIFO, PoolSize: o.PoolSize, PoolTimeout: o.PoolTimeout, MaxConcurrentDials: o.MaxConcurrentDials, PipelinePoolSize: o.PipelinePoolSize,
		MinIdleConns: o.MinIdleConns, MaxIdleConns: o.MaxIdleConns, MaxActiveConns: o.MaxActiveConns,
		ConnMaxIdleTime: o.ConnMaxIdleTime, ConnMaxLifetime: o.ConnMaxLifetime, ConnMaxLifetimeJitter: o.ConnMaxLifetimeJitter,
		FailingTimeoutSeconds: o.FailingTimeoutSeconds,
	}, nil
}

func ofSentinel(text string) (*redis.UniversalOptions, error) {
	o, err := redis.ParseFailoverURL(text)
	if err != nil {
		return nil, err
	}
	return &redis.UniversalOptions{
		Addrs: o.SentinelAddrs, MasterName: o.MasterName, DB: o.DB, ClientName: o.ClientName, Protocol: o.Protocol, Username: o.Username, Password: o.Password,
		SentinelUsername: o.SentinelUsername, SentinelPassword: o.SentinelPassword, TLSConfig: o.TLSConfig,
		MaxRetries: o.MaxRetries, MinRetryBackoff: o.MinRetryBackoff, MaxRetryBackoff: o.MaxRetryBackoff,
		DialTimeout: o.DialTimeout, DialerRetries: o.DialerRetries, DialerRetryTimeout: o.DialerRetryTimeout, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout,
		PoolFIFO: o.PoolFIFO, PoolSize: o.PoolSize, PoolTimeout: o.PoolTimeout, MaxConcurrentDials: o.MaxConcurrentDials, PipelinePoolSize: o.PipelinePoolSize,
		MinIdleConns: o.MinIdleConns, MaxIdleConns: o.MaxIdleConns, MaxActiveConns: o.MaxActiveConns,
		ConnMaxIdleTime: o.ConnMaxIdleTime, ConnMaxLifetime: o.ConnMaxLifetime, ConnMaxLifetimeJitter: o.ConnMaxLifetimeJitter,
		DisableIdentity: o.DisableIdentity, IdentitySuffix: o.IdentitySuffix,
	}, nil
}
