package tiered

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
)

// Law 7: at most 64 bytes of a key, however long, are kept for outages and sent to Redis, so long keys cost only
// the callers that use them.
func TestLaw7LongKeysAreNotKept(t *testing.T) {
	server := redistest.Start(t)
	l := newLimiterOn(t, server.Client(t), redistest.Prefix())
	r := newRule(t, l, "r", limit.PerHour(10))
	long := strings.Repeat("x", 8<<10)
	d := mustAllow(t, r, long, 3)
	if other := mustAllow(t, r, long+"y", 1); d.Remaining != 7 || other.Remaining != 9 {
		t.Errorf("two long keys share a limit: %+v, %+v", d, other)
	}
	for _, key := range server.Client(t).Keys(t.Context(), "*").Val() {
		if len(key) > 128 {
			t.Errorf("Redis keeps a key of %d bytes", len(key))
		}
	}
	q := r.ask(long, 1, lua.Take)
	if e := q.entry(); len(e.Key) > 64 {
		t.Errorf("a trip carries a key of %d bytes", len(e.Key))
	}

	server.Kill()
	l.shard.Breaker.ForceOpen(errors.New("killed"))
	const keys = 10_000
	before := heap()
	for i := range keys {
		mustAllow(t, r, fmt.Sprint(i, long), 1)
	}
	if grown := int64(heap()) - int64(before); grown > keys*512 {
		t.Errorf("the heap has grown by %d bytes for each of %d keys", grown/keys, keys)
	} else {
		t.Logf("the heap has grown by %d bytes for each of %d keys", grown/keys, keys)
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
