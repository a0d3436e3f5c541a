package rulesfile

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/tiered"
)

func TestMain(m *testing.M) { redistest.Main(m) }

const (
	good   = "rules: {search: {limit: 60/1m}}\n"
	better = "rules: {search: {limit: 90/1m}}\n"
	bad    = "rules: {search: {limit: 90}}\n"
)

// newLimiter returns a limiter with keys of its own. Its deadline is long, because these tests are not
// about deadlines.
func newLimiter(t testing.TB, options ...tiered.Option) *tiered.Limiter {
	t.Helper()
	options = append([]tiered.Option{
		tiered.Prefix(redistest.Prefix()), tiered.Deadline(5 * time.Second), tiered.Logger(slog.New(slog.DiscardHandler)),
		tiered.LedgerKeys(1000), tiered.RememberDenials(1000),
	}, options...)
	client := redistest.Shared(t).Client(t)
	l := redistest.Reached(t, client, func() (*tiered.Limiter, error) { return tiered.New(client, options...) })
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// rulesFile is a rules file in a directory of its own.
type rulesFile struct {
	t    testing.TB
	path string
}

func newRulesFile(t testing.TB, text string) *rulesFile {
	f := &rulesFile{t, filepath.Join(t.TempDir(), "rules.yaml")}
	f.write(text)
	return f
}

// write overwrites the file in place.
func (f *rulesFile) write(text string) { writeFile(f.t, f.path, text) }

func (f *rulesFile) load(l *tiered.Limiter, options ...Option) *Rules {
	f.t.Helper()
	return load(f.t, l, f.path, options...)
}

func load(t testing.TB, l *tiered.Limiter, path string, options ...Option) *Rules {
	t.Helper()
	rules, err := Load(l, path, append([]Option{Logger(slog.New(slog.DiscardHandler))}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

func rule(t testing.TB, rules *Rules, name string) *Rule {
	t.Helper()
	r, err := rules.Rule(name)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func writeFile(t testing.TB, path, text string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(text), 0o600))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
