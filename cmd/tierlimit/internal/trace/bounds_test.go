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

// Requests of keys that are known already do not exceed the bound of keys.
func TestKnownKeysNeedNoRoom(t *testing.T) {
	text := line("a", "22:13:20", "/") + line("b", "22:13:21", "/") + line("a", "22:13:22", "/") + line("b", "22:13:23", "/")
	reader, err := accesslog.NewReader(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	trace, err := Load(reader, accesslog.KeyHost, accesslog.CostRequests, Bounds{Requests: 4, Keys: 2})
	if err != nil || trace.Len() != 4 || trace.Keys() != 2 {
		t.Errorf("%v, %d requests of %d keys", err, trace.Len(), trace.Keys())
	}
}

// Requests without a user are counted, and share a key.
func TestUnnamedRequestsAreCounted(t *testing.T) {
	text := line("a", "22:13:20", "/") + strings.Replace(line("b", "22:13:21", "/"), "- -", "- eve", 1) + line("c", "22:13:22", "/")
	trace, err := load(t, strings.NewReader(text), accesslog.KeyUser)
	if err != nil || trace.Unnamed != 2 || trace.Keys() != 2 {
		t.Errorf("%v, %d of %d keys are unnamed", err, trace.Unnamed, trace.Keys())
	}
	if trace, err := load(t, strings.NewReader(text), accesslog.KeyHost); err != nil || trace.Unnamed != 0 {
		t.Errorf("%v, %d hosts are unnamed", err, trace.Unnamed)
	}
}

// percentReader stores the percentage of garbage that is in force while the log is read.
type percentReader struct {
	io.Reader
	percent int
}

func (r *percentReader) Read(p []byte) (int, error) {
	r.percent = debug.SetGCPercent(100)
	debug.SetGCPercent(r.percent)
	return r.Reader.Read(p)
}

// Reading collects garbage more often, unless the user wants that even more, and the user's setting comes back.
func TestGarbageIsCollectedMoreOftenWhileReading(t *testing.T) {
	usual := debug.SetGCPercent(100)
	defer debug.SetGCPercent(usual)
	for _, c := range []struct{ set, reading int }{{100, garbagePercent}, {garbagePercent - 1, garbagePercent - 1}, {-1, garbagePercent}} {
		debug.SetGCPercent(c.set)
		// The log is longer than what is read ahead to recognize its format.
		r := &percentReader{Reader: strings.NewReader(strings.Repeat(line("a", "22:13:20", "/"), 10_000))}
		if _, err := load(t, r, accesslog.KeyHost); err != nil {
			t.Fatal(err)
		}
		if after := debug.SetGCPercent(100); r.percent != c.reading || after != c.set {
			t.Errorf("set to %d: %d while reading, %d afterwards", c.set, r.percent, after)
		}
	}
}
