package rulesfile

import (
	"os"
	"testing"

	"github.com/tierlimit/tierlimit/limit"
)

// A change that is undone before the second look was only half written: when the same text appears again, it has to be
// seen twice once more.
func TestAChangeThatIsUndoneIsForgotten(t *testing.T) {
	f := newRulesFile(t, good)
	loads := 0
	rules := f.load(newLimiter(t), OnLoad(func(error) { loads++ }))
	search := rule(t, rules, "search")
	for _, text := range []string{better, good, better} {
		f.write(text)
		rules.look()
		if got := search.For("k").Limit(); got != limit.PerMinute(60) || loads != 0 {
			t.Fatalf("in force: %v, after %d loads", got, loads)
		}
	}
	rules.look()
	if got := search.For("k").Limit(); got != limit.PerMinute(90) || loads != 1 {
		t.Errorf("in force: %v, after %d loads", got, loads)
	}
}

// A missing file, an empty file and a directory differ, although none has text: each is reported.
func TestEachWayInWhichAFileIsMissingIsReported(t *testing.T) {
	f := newRulesFile(t, good)
	var told []error
	rules := f.load(newLimiter(t), OnLoad(func(err error) { told = append(told, err) }))
	look := func(what string, loads int) {
		t.Helper()
		for range 3 {
			rules.look()
		}
		if len(told) != loads || told[loads-1] == nil {
			t.Fatalf("%s: %v", what, told)
		}
	}
	must(t, os.Remove(f.path))
	look("no file", 1)
	f.write("")
	look("an empty file", 2)
	must(t, os.Remove(f.path))
	must(t, os.Mkdir(f.path, 0o700))
	look("a directory", 3)
}
