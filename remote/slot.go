package remote

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// SlotCount is the number of hash slots of every Redis Cluster.
const SlotCount = 16384

// keySlot returns the slot of a Redis key: that of its hash tag, as the Redis Cluster specification
// defines it. go-redis computes the same but does not export it.
func keySlot(key string) uint16 {
	if open := strings.IndexByte(key, '{'); open >= 0 {
		if length := strings.IndexByte(key[open+1:], '}'); length > 0 {
			key = key[open+1 : open+1+length]
		}
	}
	return hashSlot(key)
}

// hashSlot is CRC16 (XMODEM), modulo 16384.
func hashSlot(tag string) uint16 {
	var crc uint16
	for i := 0; i < len(tag); i++ {
		crc = crc<<8 ^ crc16Table[byte(crc>>8)^tag[i]]
	}
	return crc % SlotCount
}

var crc16Table = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
		table[i] = crc
	}
	return table
}()

// Masters maps the slots of a Cluster to its masters.
type Masters struct {
	Addrs []string          // of the masters that have slots
	Of    [SlotCount]uint16 // position in Addrs, by slot
}

// MastersOf returns the mapping by which a Cluster's client currently routes commands. That costs
// no trip, unless the client has not asked the Cluster yet; see [RefreshMasters].
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

// RefreshMasters lets the client ask the Cluster again, in the background.
func RefreshMasters(ctx context.Context, client *redis.ClusterClient) { client.ReloadState(ctx) }

// keyInSlot has a key for each slot; each slot has four keys of two bytes.
var keyInSlot = sync.OnceValue(func() *[SlotCount][2]byte {
	keys := new([SlotCount][2]byte)
	for n := range 1 << 16 {
		key := [2]byte{byte(n >> 8), byte(n)}
		keys[hashSlot(string(key[:]))] = key
	}
	return keys
})
