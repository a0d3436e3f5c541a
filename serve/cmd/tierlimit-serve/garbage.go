package main

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// boundGarbage chooses how much garbage there may be before it is collected, by the size of what
// lives, until ctx ends.
func boundGarbage(ctx context.Context) {
	ticker := time.NewTicker(100 * time.Millisecond) // a large configuration is read within a second
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

// mostGarbage is the number of bytes of garbage that there may be even if as much does not live.
const mostGarbage = 128 << 20

// garbagePercent is how much garbage there may be, in percent of what lives. With a small
// configuration a few MB live, so that by Go's default, 100, a collection would come every few ms:
// there may be four times as much. With tens of thousands of limits that would be most of the
// process's memory, and collections are rare in any case.
func garbagePercent(live uint64) int {
	percent := mostGarbage * 100 / max(1, live)
	return int(min(max(percent-percent%50, 100), 400))
}
