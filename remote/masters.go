package remote

import (
	"context"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Masters maps the slots of a Cluster to its masters.
type Masters struct {
	Addrs []string          // of the masters that have slots
	Of    [SlotCount]uint16 // position in Addrs, by slot
}

// MastersOf returns the mapping by which a Cluster's client currently routes commands. This takes no trip,
// unless the client has not asked the Cluster yet; see [redis.ClusterClient.ReloadState].
func MastersOf(ctx context.Context, client *redis.ClusterClient) (*Masters, error) {
	m := &Masters{}
	positions := make(map[*redis.Client]uint16)
	keys := keyInSlot()
	for slot := range m.Of {
		master, err := client.MasterForKey(ctx, string(keys[slot][:]))
		if err != nil {
			return nil, fmt.Errorf("asking the Cluster which master has which slot: %w", err)
		}
		position, seen := positions[master]
		if !seen {
			position = uint16(len(m.Addrs))
			positions[master] = position
			m.Addrs = append(m.Addrs, master.Options().Addr)
		}
		m.Of[slot] = position
	}
	return m, nil
}

// keyInSlot has a key for each slot; each slot has four keys of two bytes.
var keyInSlot = sync.OnceValue(func() *[SlotCount][2]byte {
	keys := new([SlotCount][2]byte)
	for n := range 1 << 16 {
		key := [2]byte{byte(n >> 8), byte(n)}
		keys[hashSlot(string(key[:]))] = key
	}
	return keys
})

// MastersBehind returns the number of masters of the Cluster that a client's server belongs to, or 0 if the
// server is no node of a Cluster. It asks with HELLO, which every user of Redis may run.
func MastersBehind(ctx context.Context, client *redis.Client) (int, error) {
	hello := redis.NewMapStringInterfaceCmd(ctx, "hello")
	if err := client.Process(ctx, hello); err != nil {
		return 0, fmt.Errorf("asking the server whether it is a Cluster node: %w", err)
	}
	if hello.Val()["mode"] != "cluster" {
		return 0, nil
	}
	//lint:ignore SA1019 Redis 6.2 has no CLUSTER SHARDS, and users of a Cluster may give CLUSTER SLOTS.
	slots, err := client.ClusterSlots(ctx).Result()
	if err != nil {
		return 0, fmt.Errorf("asking a Cluster node for the masters: %w", err)
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
