package main

import "runtime"

// held is the memory that a subject uses in this process for a group's keys. It includes its client and tables of
// fixed size.
type held struct {
	Subject string  `json:"subject"`
	Group   string  `json:"group"`
	PerKey  float64 `json:"bytes_per_key"`
}

// heapBytes is an amount of memory in use on the heap.
type heapBytes uint64

func heap() heapBytes {
	runtime.GC()
	runtime.GC() // the second empties pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return heapBytes(m.HeapAlloc)
}

// until returns the growth of the heap between the two readings.
func (before heapBytes) until(after heapBytes, g *group, c contender, keys int) held {
	return held{Subject: c.name, Group: g.name, PerKey: max(0, float64(after)-float64(before)) / float64(keys)}
}
