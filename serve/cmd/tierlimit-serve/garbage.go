package main

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// boundGarbage sets Go's garbage collection percentage by the size of the live heap, again and again until ctx ends.
func boundGarbage(ctx context.Context) {
	ticker := time.NewTicker(100 * time.Millisecond) // reading a large configuration takes less than a second
	defer ticker.Stop()
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	for chosen := 0; ; {
		metrics.Read(live)
		if percent := garbagePercent(live[0].Value.Uint64()); percent != chosen {
			chosen = percent
			debug.SetGCPercent(percent)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// maxGarbage is how many bytes of garbage may accumulate even if the live heap is smaller.
const maxGarbage = 128 << 20

// garbagePercent returns how much garbage may accumulate, in percent of the live heap. With a small configuration the
// live heap is a few MB, and by Go's default, 100, a collection would come every few ms, so up to four times the live
// heap is allowed. With tens of thousands of limits, that much garbage would be most of the process's memory, and
// collections are rare in any case.
func garbagePercent(live uint64) int {
	percent := maxGarbage * 100 / max(1, live)
	return int(min(max(percent-percent%50, 100), 400))
}
