package main

import "runtime"

// held is what a subject keeps in this process's memory for a group's keys: its
// client and tables of fixed size included.
type held struct {
	Subject string  `json:"subject"`
	Group   string  `json:"group"`
	PerKey  float64 `json:"bytes_per_key"`
}

// heapBytes is how much memory is in use on the heap.
type heapBytes uint64

func heap() heapBytes {
	runtime.GC()
	runtime.GC() // the second empties pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return heapBytes(m.HeapAlloc)
}

// until is what came to the heap since then.
func (before heapBytes) until(after heapBytes, g *group, c contender, keys int) held {
	return held{Subject: c.name, Group: g.name, PerKey: max(0, float64(after)-float64(before)) / float64(keys)}
}
