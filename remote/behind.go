package remote

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// MastersBehind returns the number of masters in the Cluster that a client's server belongs to, or
// 0 if it is no node of a Cluster. It asks with HELLO, which every user of Redis may run.
func MastersBehind(ctx context.Context, client *redis.Client) (int, error) {
	hello, err := client.Do(ctx, "HELLO").Result()
	if err != nil {
		return 0, fmt.Errorf("asking the server what it is: %w", err)
	}
	if mode(hello) != "cluster" {
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

// mode returns the mode from the answer to HELLO, which is a map under RESP3 and a list under
// RESP2.
func mode(hello any) any {
	switch hello := hello.(type) {
	case map[any]any:
		return hello["mode"]
	case []any:
		for i := 0; i+1 < len(hello); i += 2 {
			if hello[i] == "mode" {
				return hello[i+1]
			}
		}
	}
	return nil
}

// IsElsewhere reports whether a node of a Cluster refused a command because its keys are on another
// node, or on several.
func IsElsewhere(err error) bool {
	text, _ := serverError(err)
	return beginsWithAny(text, []string{"MOVED ", "ASK ", "CROSSSLOT "})
}
