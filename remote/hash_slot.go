package remote

import "strings"

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
	for i := range len(tag) {
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
