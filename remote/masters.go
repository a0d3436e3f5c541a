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

// MastersOf returns the mapping by which a Cluster's client currently routes commands. That costs
// no trip, unless the client has not asked the Cluster yet; see
// [redis.ClusterClient.ReloadState].
func MastersOf(ctx context.Context, client *redis.ClusterClient) (*Masters, error) {
	m := &Masters{}
	positions := make(map[*redis.Client]uint16)
	keys := keyInSlot()
	for slot := range m.Of {
		master, err := client.MasterForKey(ctx, string(keys[slot][:]))
		if err != nil {
			return nil, fmt.Errorf("which master has which slot: %w", err)
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
