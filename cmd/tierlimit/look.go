package main

import (
	"context"
	"flag"
	"fmt"
	"io"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/tierlimit/tierlimit/internal/redisurl"
	"github.com/tierlimit/tierlimit/remote"
)

// lookFlags are the flags of commands that look into a Redis that services use.
type lookFlags struct {
	limitFlags
	redis    string
	prefix   string
	hashTags int
	keyspace remote.Keyspace
}

func (f *lookFlags) add(set *flag.FlagSet) {
	redisURLFlag(set, &f.redis, " that services use", "$REDIS_URL; one of them must be given")
	set.StringVar(&f.prefix, "prefix", "tl", "the `prefix` of the keys, as set by tiered.Prefix")
	set.IntVar(&f.hashTags, "hash-tags", 0, "the `number` of hash tags that keys are spread over, as set by tiered.HashTags")
	set.StringVar(&f.file, "rules", "", "the rules `file` of the services, which says what limit a key has")
	limitFlag(set, &f.limit, "the rule's limit, as `QUOTA/WINDOW`, if there is no rules file")
}

func (f *lookFlags) check() (err error) {
	if f.redis == "" {
		return usageError{errNoRedis}
	}
	if f.hashTags < 0 || f.hashTags > remote.SlotCount {
		return usageError{fmt.Errorf("-hash-tags %d: must be between 1 and %d, or 0 for none", f.hashTags, remote.SlotCount)}
	}
	if f.keyspace, err = remote.NewKeyspace(f.prefix); err != nil {
		return usageError{err}
	}
	if f.hashTags > 0 {
		f.keyspace = f.keyspace.WithHashTags(f.hashTags)
	}
	return f.limitFlags.check()
}

// connect returns a client for the kind of Redis that the URL names, and prints on stderr which Redis
// it is.
func (f *lookFlags) connect(stderr io.Writer) (redis.UniversalClient, error) {
	options, shown, err := redisurl.Parse(f.redis)
	if err != nil {
		return nil, usageError{fmt.Errorf("-redis: %w", err)}
	}
	options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	options.DialerRetries = 1
	if options.MaxRetries == 0 { // the URL does not set it
		options.MaxRetries = -1 // each retry would wait once more for a server that does not answer
	}
	sayRedis(stderr, shown, f.redis)
	return redis.NewUniversalClient(options), nil
}

// nodeOf returns the client of the node that has a key. On a Cluster, that is the master of the key's
// slot.
func nodeOf(ctx context.Context, client redis.UniversalClient, key string) (redis.Cmdable, error) {
	if cluster, ok := client.(*redis.ClusterClient); ok {
		return cluster.MasterForKey(ctx, key)
	}
	return client, nil
}
