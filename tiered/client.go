package tiered

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/outage"
	"github.com/tierlimit/tierlimit/remote"
)

// optionsOf returns those options of a client that do not depend on its type. For a client of an unknown type they
// are empty.
func optionsOf(client redis.UniversalClient) (_ *redis.Options, known bool) {
	switch client := client.(type) {
	case *redis.Client:
		return client.Options(), true
	case *redis.ClusterClient:
		o := client.Options()
		return &redis.Options{
			DialTimeout: o.DialTimeout, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout, TLSConfig: o.TLSConfig,
			OnConnect: o.OnConnect, CredentialsProvider: o.CredentialsProvider, StreamingCredentialsProvider: o.StreamingCredentialsProvider,
		}, true
	}
	return &redis.Options{}, false
}

// keepsDeadlines reports whether a client keeps the deadlines of contexts, so that callers may make their own trips.
// A client of one node does once it is adapted (see [remote.Adapt]), and so does a Cluster's, because package remote
// adapts the clients of its nodes. But with time-outs of -2, go-redis sets no deadline on its connections, and
// functions of the program that run on each new connection do not learn of the deadline, or may ignore it.
func keepsDeadlines(client redis.UniversalClient) bool {
	o, known := optionsOf(client)
	mayBlock := o.OnConnect != nil || o.CredentialsProvider != nil || o.StreamingCredentialsProvider != nil
	return known && o.ReadTimeout >= 0 && o.WriteTimeout >= 0 && !mayBlock
}

// tlsHint says what may be wrong if only one side speaks TLS. No error says so: a server that speaks TLS
// hangs up, and a server that does not speak TLS waits for more data.
func tlsHint(client redis.UniversalClient, err error) string {
	o, _ := optionsOf(client)
	switch {
	case o.TLSConfig == nil && errors.Is(err, io.EOF):
		return "the server hangs up without an answer: it may speak TLS only (set TLSConfig, or use rediss:// in the URL)"
	case o.TLSConfig != nil && remote.KindOf(err) == remote.Timeout:
		return "the server does not answer: it may not speak TLS, and the client uses TLS (TLSConfig, or rediss:// in the URL)"
	}
	return ""
}

// errOneNode is logged if the client knows only one node of a Cluster, and therefore cannot ask the other
// masters for their keys.
var errOneNode = errors.New("the Redis client is for a single node, and the node belongs to a Cluster with several masters: " +
	"make the client with redis.NewClusterClient, or set IsClusterMode in the options for tiered.Open")

// joined prepares for decisions once Redis, or the first master of a Cluster, has answered. If the first
// trip had to look for the function library, its callers would wait three round trips longer, and miss
// their deadline if Redis is far away.
func (l *Limiter) joined(s *outage.Shard) {
	l.checkNode(s)
	_, _ = outage.WithinStart(l.shards, func(ctx context.Context) (any, error) {
		l.script.Prepare(ctx)
		if !l.config.ownsClient {
			l.script.DialAnother(ctx)
		}
		return nil, nil
	})
}

// checkNode checks, once Redis has answered, whether it is a node of a Cluster. If it is, each call of
// the script may only have keys of one slot. If the Cluster has several masters, the client is of the
// wrong kind.
func (l *Limiter) checkNode(s *outage.Shard) {
	client, ok := l.client.(*redis.Client)
	if !ok {
		return
	}
	masters, err := outage.WithinStart(l.shards, func(ctx context.Context) (int, error) {
		return remote.MastersBehind(ctx, client)
	})
	if err == nil && masters > 0 {
		l.script.DivideBySlot()
	}
	if err == nil && masters > 1 { // if MastersBehind failed, decisions will show the mistake
		s.Failed(errOneNode)
	}
}

// explain adds to an error why Redis could not be asked.
func (l *Limiter) explain(err error) error {
	if l.shard != nil && (errors.Is(err, errOneNode) || remote.IsOnAnotherNode(err)) {
		// Waiting does not help, but decisions are still made. So this is logged, and is not an error.
		l.log.Warn("one node", "the Redis client is for a single node, and the node belongs to a Cluster: the outage policies decide for all keys "+
			"that other masters hold, until the client is made with redis.NewClusterClient, or by tiered.Open with IsClusterMode", "error", err)
		if !errors.Is(err, errOneNode) {
			err = fmt.Errorf("%w: %w", errOneNode, err)
		}
	}
	if n := poolInUse(l.client, err); n > 0 {
		err = fmt.Errorf("%w (all %d connections of the client's pool are in use, perhaps by blocking commands)", err, n)
	}
	return err
}

// poolInUse returns the size of a client's pool if a trip found no free connection before its deadline and there still
// is none, and 0 otherwise. The error alone, a context's, does not say that Redis was never asked.
func poolInUse(client redis.UniversalClient, err error) int {
	c, ok := client.(*redis.Client)
	if !ok || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, redis.ErrPoolTimeout) {
		return 0
	}
	if stats := c.PoolStats(); stats.IdleConns > 0 || int(stats.TotalConns) < c.Options().PoolSize {
		return 0
	}
	return c.Options().PoolSize
}

// clientFor makes a client from options. If they have one address, and a node of a Cluster with several
// masters answers there, it makes a Cluster client, because a client of one node could not ask the other
// masters. Managed services give one address for a whole Cluster. If there is only one master, the client
// uses the given address, because other addresses that the node might name need not be reachable from
// here.
func clientFor(options redis.UniversalOptions) (client redis.UniversalClient, cluster bool) {
	client = redis.NewUniversalClient(&options)
	node, ok := client.(*redis.Client)
	if !ok || options.MasterName != "" {
		return client, false
	}
	ctx, cancel := context.WithTimeout(context.Background(), outage.StartWithin)
	defer cancel()
	if masters, err := remote.MastersBehind(ctx, node); err != nil || masters < 2 {
		return client, false
	}
	_ = node.Close() // nothing is in flight
	options.IsClusterMode = true
	return redis.NewUniversalClient(&options), true
}
