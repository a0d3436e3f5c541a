package trace

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/tierlimit/tierlimit/cmd/tierlimit/internal/accesslog"
)

// strangers is a log of n requests, each for a path of its own of the given length. A gzip of such a
// log could be tiny, because the paths have so much in common.
type strangers struct {
	n, length int
	written   int
	rest      bytes.Buffer
}

func (s *strangers) Read(p []byte) (int, error) {
	if s.rest.Len() == 0 {
		if s.written == s.n {
			return 0, io.EOF
		}
		s.written++
		path := fmt.Sprintf("/%d/", s.written)
		s.rest.WriteString(line("a", "22:13:20", path+strings.Repeat("x", s.length-len(path))))
	}
	return s.rest.Read(p)
}

// A trace does not keep the log's long paths in memory, but tells them apart.
func TestLongKeysTakeLittleMemory(t *testing.T) {
	const n, length = 500, 100_000
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	trace, err := load(t, &strangers{n: n, length: length}, accesslog.KeyPath)
	if err != nil || trace.Keys() != n || trace.Len() != n {
		t.Fatal(err, trace.Keys(), trace.Len())
	}
	if grown := heap() - before; grown > 4<<20 { // the paths have 50 MB in total
		t.Errorf("%d keys of %d bytes take %d bytes", n, length, grown)
	}
	for _, e := range trace.All() {
		if len(e.Key) > longestKey {
			t.Fatalf("a key of %d bytes is kept", len(e.Key))
		}
	}
	runtime.KeepAlive(trace)
}

// A log with more requests or keys than the bounds allow is refused as soon as it exceeds a bound.
func TestBounds(t *testing.T) {
	for _, c := range []struct {
		most Bounds
		want error
	}{
		{Bounds{Requests: 10, Keys: 10}, nil},
		{Bounds{Requests: 9, Keys: 10}, ErrRequests},
		{Bounds{Requests: 10, Keys: 9}, ErrKeys},
	} {
		log := &strangers{n: 10, length: 20}
		reader, err := accesslog.NewReader(log)
		if err != nil {
			t.Fatal(err)
		}
		trace, err := Load(reader, accesslog.KeyPath, accesslog.CostRequests, c.most)
		if !errors.Is(err, c.want) || trace.Len() > c.most.Requests || trace.Keys() > c.most.Keys {
			t.Errorf("%+v: %v, %d requests of %d keys", c.most, err, trace.Len(), trace.Keys())
		}
	}
}

// Reading a log takes no more memory than Bounds states.
func TestMemoryOfReading(t *testing.T) {
	const n = 1_000_000
	var before, after runtime.MemStats
	debug.FreeOSMemory()
	runtime.ReadMemStats(&before)
	trace, err := load(t, &steady{left: n}, accesslog.KeyHost)
	if err != nil || trace.Len() != n {
		t.Fatal(err, trace.Len())
	}
	runtime.ReadMemStats(&after)
	held := func(m runtime.MemStats) int64 { return int64(m.HeapSys - m.HeapReleased) }
	if each := (held(after) - held(before)) / n; each > 45 {
		t.Errorf("each request took %d bytes, want some 40 at most", each)
	}
	runtime.KeepAlive(trace)
}

// steady is a log with the given number of requests.
type steady struct {
	left int
	rest []byte
}

func (s *steady) Read(p []byte) (int, error) {
	for len(s.rest) < len(p) && s.left > 0 {
		s.rest = fmt.Appendf(s.rest, "%d.5 10.0.0.%d\n", 1_700_000_000+s.left, s.left%200)
		s.left--
	}
	if len(s.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.rest)
	s.rest = s.rest[:copy(s.rest, s.rest[n:])]
	return n, nil
}
