package trace

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/tierlimit/tierlimit/cmd/tierlimit/internal/accesslog"
	"github.com/tierlimit/tierlimit/cmd/tierlimit/internal/nasa"
)

// epoch is the time of a line of second 0, in microseconds.
const epoch = 1_700_000_000 * second // 14 Nov 2023 22:13:20

func line(host, clock, path string) string {
	return fmt.Sprintf("%s - - [14/Nov/2023:%s +0000] \"GET %s HTTP/1.0\" 200 1\n", host, clock, path)
}

func load(t *testing.T, r io.Reader, key accesslog.KeyKind) (*Trace, error) {
	t.Helper()
	log, err := accesslog.NewReader(r)
	if err != nil {
		t.Fatal(err)
	}
	return Load(log, key, accesslog.CostRequests, Default)
}

func events(t *Trace) (all []Event) {
	for _, e := range t.All() {
		all = append(all, e)
	}
	return all
}

func TestWholeSecondsAreSpread(t *testing.T) {
	log := line("c", "22:13:22", "/") + "bad\n" + line("a", "22:13:20", "/") +
		line("b", "22:13:21", "/") + line("a", "22:13:21", "/")
	trace, err := load(t, strings.NewReader(log), accesslog.KeyHost)
	if err != nil {
		t.Fatal(err)
	}
	if trace.Len() != 4 || trace.Keys() != 3 || trace.BadLines != 1 {
		t.Fatalf("%+v", trace)
	}
	fractions := map[int64]bool{}
	for i, want := range []int64{0, 1, 1, 2} {
		at := trace.At(i)
		if (at-epoch)/second != want {
			t.Errorf("event %d is at %d, want it in second %d", i, at-epoch, want)
		}
		fractions[at%second] = true
	}
	if len(fractions) != 4 {
		t.Errorf("fractions are not spread: %v", events(trace))
	}
}

// The parts of a rotated log may come in any order: each request is moved by the same fraction.
func TestPartsComeInAnyOrder(t *testing.T) {
	older := line("a", "22:13:20", "/") + line("b", "22:13:20", "/") + line("a", "22:13:21", "/")
	newer := line("b", "22:13:22", "/") + line("a", "22:13:22", "/")
	inOrder, err := load(t, strings.NewReader(older+newer), accesslog.KeyHost)
	if err != nil {
		t.Fatal(err)
	}
	reversed, err := load(t, strings.NewReader(newer+older), accesslog.KeyHost)
	if err != nil {
		t.Fatal(err)
	}
	if want, got := events(inOrder), events(reversed); !slices.Equal(got, want) {
		t.Errorf("the newer part first gives\n%v, the older part first\n%v", got, want)
	}
}

func TestFractionsAreKept(t *testing.T) {
	log := line("c", "22:13:21", "/") + line("b", "22:13:20.000003", "/") +
		line("z", "22:13:20", "/") + line("a", "22:13:20", "/")
	trace, err := load(t, strings.NewReader(log), accesslog.KeyHost)
	if err != nil {
		t.Fatal(err)
	}
	want := []Event{{epoch, "z", 1}, {epoch, "a", 1}, {epoch + 3, "b", 1}, {epoch + second, "c", 1}}
	if got := events(trace); !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestKeys(t *testing.T) {
	log := line("a", "22:13:20", "/x?1") + line("a", "22:13:21", "/x?2") + line("b", "22:13:22", "/x")
	for kind, want := range map[accesslog.KeyKind][]string{
		accesslog.KeyHost:        {"a", "a", "b"},
		accesslog.KeyPath:        {"/x", "/x", "/x"},
		accesslog.KeyHostAndPath: {"a /x", "a /x", "b /x"},
	} {
		trace, err := load(t, strings.NewReader(log), kind)
		if err != nil {
			t.Fatal(err)
		}
		distinct := map[string]bool{}
		for i, e := range trace.All() {
			distinct[e.Key] = true
			if e.Key != want[i] {
				t.Errorf("%s: event %d has key %q, want %q", kind, i, e.Key, want[i])
			}
		}
		if trace.Keys() != len(distinct) {
			t.Errorf("%s: %d keys, want %d", kind, trace.Keys(), len(distinct))
		}
	}
}

func TestEmptyLog(t *testing.T) {
	trace, err := load(t, strings.NewReader(""), accesslog.KeyHost)
	if err != nil || trace.Len() != 0 || trace.Keys() != 0 {
		t.Errorf("%+v, %v", trace, err)
	}
}

func TestBrokenLogGivesWhatWasRead(t *testing.T) {
	broken := errors.New("disk on fire")
	in := io.MultiReader(strings.NewReader(line("a", "22:13:20", "/")+"half"), iotest.ErrReader(broken))
	trace, err := load(t, in, accesslog.KeyHost)
	if !errors.Is(err, broken) || trace.Len() != 1 || trace.At(0) == epoch {
		t.Errorf("%+v, %v", trace, err)
	}
}

func TestBuiltInDay(t *testing.T) {
	first, err := load(t, nasa.Open(), accesslog.KeyHost)
	if err != nil {
		t.Fatal(err)
	}
	if first.Len() != 30969 || first.Keys() != 2365 || first.BadLines != 0 {
		t.Errorf("%d events, %d keys, %d bad lines", first.Len(), first.Keys(), first.BadLines)
	}
	if !slices.IsSortedFunc(events(first), func(a, b Event) int { return int(a.At - b.At) }) {
		t.Error("not in the order of time")
	}
	again, err := load(t, nasa.Open(), accesslog.KeyHost)
	if err != nil || !slices.Equal(events(first), events(again)) {
		t.Error("loaded twice, the traces differ")
	}
}

// A request keeps its key and its cost when the requests are sorted by time.
func TestCostsStayWithTheirRequests(t *testing.T) {
	of := []Event{{At: 30, Key: "a", Cost: 1}, {At: 10, Key: "b", Cost: 7}, {At: 20, Key: "a", Cost: 5}, {At: 10, Key: "c", Cost: 1}}
	trace := Of(of...)
	if got, want := events(trace), []Event{of[1], of[3], of[2], of[0]}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if trace.OneEach() || trace.Keys() != 3 {
		t.Error(trace.OneEach(), trace.Keys())
	}
	if ones := Of(of[0], of[3]); !ones.OneEach() || ones.CostOf(1) != 1 {
		t.Error(ones.OneEach(), ones.CostOf(1))
	}
}
