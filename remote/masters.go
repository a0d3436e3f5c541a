package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Masters maps the slots of a Cluster to its masters.
type Masters struct {
	Addrs  []string          // of the masters that have slots; also NoMaster if there are slots that no master has
	BySlot [SlotCount]uint16 // position in Addrs, by slot
}

// NoMaster stands for the address of the master of slots that no master has. A Cluster has such slots when a master
// without replicas was removed from it (CLUSTER FORGET), or after CLUSTER DELSLOTS.
const NoMaster = "no master"

// hasNoMaster reports whether no master has a slot.
func (m *Masters) hasNoMaster(slot int) bool { return m != nil && m.Addrs[m.BySlot[slot]] == NoMaster }

// MastersOf returns the mapping by which a Cluster's client currently routes commands. This takes no trip,
// unless the client has not asked the Cluster yet; see [redis.ClusterClient.ReloadState]. before is the previous
// mapping, or nil.
//
// For a slot that no master has, go-redis names a random node each time that it is asked. So slots that may be such a
// slot are asked for several times: those whose neighbor has another master or none, and those that had none before.
func MastersOf(ctx context.Context, client *redis.ClusterClient, before *Masters) (*Masters, error) {
	keys := keyInSlot()
	masterOf := func(slot int) (*redis.Client, error) {
		master, err := client.MasterForKey(ctx, string(keys[slot][:]))
		if err != nil {
			return nil, fmt.Errorf("asking the Cluster which master has which slot: %w", err)
		}
		return master, nil
	}
	var of [SlotCount]*redis.Client // nil: no master has the slot
	for slot := range of {
		master, err := masterOf(slot)
		if err != nil {
			return nil, err
		}
		of[slot] = master
		if slot > 0 && of[slot-1] == master && !before.hasNoMaster(slot) {
			continue
		}
		if !changes(slot, masterOf) {
			continue
		}
		of[slot] = nil
		for i := slot - 1; i >= 0 && of[i] != nil && changes(i, masterOf); i-- { // they had the same random node by chance
			of[i] = nil
		}
	}
	m := &Masters{}
	positions := make(map[*redis.Client]uint16)
	for slot, master := range of {
		position, seen := positions[master]
		if !seen {
			position = uint16(len(m.Addrs))
			positions[master] = position
			addr := NoMaster
			if master != nil {
				addr = master.Options().Addr
			}
			m.Addrs = append(m.Addrs, addr)
		}
		m.BySlot[slot] = position
	}
	if len(m.Addrs) == 1 && m.hasNoMaster(0) {
		return nil, errNoSlots
	}
	return m, nil
}

// errNoSlots means that the Cluster's client has asked a node which has left the Cluster (CLUSTER RESET), and which
// says that no master has any slot. The client may ask such a node for a minute after it has left, and longer if the
// program has given it the node's address. Soon it asks another node.
var errNoSlots = errors.New("asking the Cluster which master has which slot: the node that was asked knows of no slots")

// changes reports whether the master of a slot changes more than once while it is asked for several times. If it
// changes once, the slot has just moved.
func changes(slot int, masterOf func(slot int) (*redis.Client, error)) bool {
	const times = 32 // of two nodes, a random one changes at most once in one of 70 million looks
	var last *redis.Client
	changed := 0
	for i := range times {
		master, err := masterOf(slot)
		if err != nil {
			return false
		}
		if i > 0 && master != last {
			changed++
		}
		if last = master; changed > 1 {
			return true
		}
	}
	return false
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

// HasNoMaster reports whether a node of a Cluster refused a command because no master has the slot of its keys. The node
// has answered, and keys of other slots are decided.
func HasNoMaster(err error) bool {
	return redis.HasErrorPrefix(err, "CLUSTERDOWN Hash slot not served")
}

// IsOnAnotherNode reports whether a node of a Cluster refused a command because its keys are on another
// node, or on several.
func IsOnAnotherNode(err error) bool {
	text, _ := serverError(err)
	return beginsWithAny(text, []string{"MOVED ", "ASK ", "CROSSSLOT "})
}
