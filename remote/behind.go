package remote

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// MastersBehind returns the number of masters in the Cluster that a client's server belongs to, or
// 0 if it is no node of a Cluster. It asks with HELLO, which every user of Redis may run.
func MastersBehind(ctx context.Context, client *redis.Client) (int, error) {
	hello := redis.NewMapStringInterfaceCmd(ctx, "hello")
	if err := client.Process(ctx, hello); err != nil {
		return 0, fmt.Errorf("asking the server what it is: %w", err)
	}
	if hello.Val()["mode"] != "cluster" {
		return 0, nil
	}
	//lint:ignore SA1019 Redis 6.2 has no CLUSTER SHARDS, and users of a Cluster may give CLUSTER SLOTS.
	slots, err := client.ClusterSlots(ctx).Result()
	if err != nil {
		return 0, fmt.Errorf("asking a node of a Cluster for the masters: %w", err)
	}
	masters := make(map[string]bool)
	for _, s := range slots {
		if len(s.Nodes) > 0 {
			masters[s.Nodes[0].ID+s.Nodes[0].Addr] = true
		}
	}
	return len(masters), nil
}

// IsElsewhere reports whether a node of a Cluster refused a command because its keys are on another
// node, or on several.
func IsElsewhere(err error) bool {
	text, _ := serverError(err)
	return beginsWithAny(text, []string{"MOVED ", "ASK ", "CROSSSLOT "})
}
