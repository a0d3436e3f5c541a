package tiered

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/outage"
	"github.com/tierlimit/tierlimit/remote"
)

// errOneNode: what the other nodes of a Cluster hold cannot be asked for by a client that knows one.
var errOneNode = errors.New("the Redis client is of one node, and the node is one of a Cluster with several masters: " +
	"make the client with redis.NewClusterClient, or set IsClusterMode in the options for tiered.Open")

// warnOneNode says that the limiter has such a client. Waiting does not mend that, but decisions
// are still made; so it is told again and again, and is no error.
func (l *Limiter) warnOneNode(err error) {
	l.log.Warn("one node", "the Redis client is of one node, and the node is one of a Cluster: the outage policies decide for all keys "+
		"that other masters hold, until the client is made with redis.NewClusterClient, or by tiered.Open with IsClusterMode", "error", err)
}

// checkNode finds out, once Redis has answered, whether it is a node of a Cluster that has more.
func (l *Limiter) checkNode(s *outage.Shard) {
	client, ok := l.client.(*redis.Client)
	if !ok {
		return
	}
	masters := 0
	err := l.shards.WithinStart(func(ctx context.Context) (err error) {
		masters, err = remote.MastersBehind(ctx, client)
		return err
	})
	if err == nil && masters > 1 { // if it cannot be told, decisions will
		s.Failed(errOneNode)
	}
}

// explain says more of why Redis could not be asked.
func (l *Limiter) explain(err error) error {
	if l.shard != nil && (errors.Is(err, errOneNode) || remote.IsElsewhere(err)) {
		l.warnOneNode(err)
		if !errors.Is(err, errOneNode) {
			err = fmt.Errorf("%w: %w", errOneNode, err)
		}
	}
	return err
}

// behind makes the client that reaches all of what the options' one address leads to: a Cluster's
// where a node of a Cluster answers that has several masters, since one node's could not ask the
// others. Managed services give a Cluster by one address. Where only one master is, it stays a
// client of that address: others, which the node might name, need not be reachable from here.
func behind(options redis.UniversalOptions) (client redis.UniversalClient, cluster bool) {
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
	_ = node.Close() // nothing is under way
	options.IsClusterMode = true
	return redis.NewUniversalClient(&options), true
}
