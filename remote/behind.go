package remote

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// MastersBehind is how many masters there are in the Cluster that a client's server is a node
// of; 0 if it is none of a Cluster. HELLO, which tells the one from the other, is a command that
// every user of Redis may give.
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

// mode reads the answer to HELLO: a map under RESP3, and under RESP2 the same as a list.
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

// IsElsewhere reports whether a node of a Cluster refused a command because of where its keys
// are: with another node, or with several.
func IsElsewhere(err error) bool {
	text, ok := serverError(err)
	for _, code := range []string{"MOVED ", "ASK ", "CROSSSLOT "} {
		if ok && strings.HasPrefix(text, code) {
			return true
		}
	}
	return false
}
