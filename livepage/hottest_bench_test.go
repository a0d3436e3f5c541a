package livepage

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkHottest measures what finding the hottest keys adds to a decision.
func BenchmarkHottest(b *testing.B) {
	h := newHottest(inClear, time.Now)
	keys := make([]string, 1<<16)
	for i := range keys {
		keys[i] = fmt.Sprint("user:", i)
	}
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		for i := 0; p.Next(); i++ {
			h.watch("search", keys[i%len(keys)], false)
		}
	})
}
