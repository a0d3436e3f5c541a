package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tierlimit/tierlimit/cmd/tierlimit/internal/synthetic"
	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/plan"
)

// reported runs report and returns the page.
func reported(t *testing.T, args ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "report.html")
	stdout, stderr, err := command(t, nil, append([]string{"report", "-o", file}, args...)...)
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	if !strings.Contains(stdout, "written to "+file) {
		t.Errorf("on standard output: %s", stdout)
	}
	html, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(html)
}

// The report of the built-in day is one file that needs no network and no script, and has the expected
// content.
func TestReportOfTheBuiltInDay(t *testing.T) {
	t.Parallel()
	html := reported(t, "-redis", redistest.Shared(t).URL(), "-above", "0", "-late", "5%", "-find", "1%")
	for _, want := range []string{
		"30969 requests of 2365 keys", "which denies 1030", // the log
		"<strong>sliding-counter:k=24,strict</strong>: the cheapest with never above the limit", // the choice
		"At most 10 units can pass in any window",
		"news.dfrc.nasa.gov", "Units granted before that: 10; and after it, where the count starts again from zero: 10.", // the worst window
		"30000 requests went through a limiter", // by tier
		"Under 14/1m, most limited",             // who would have been limited
		"prefers-color-scheme: dark", "@media print", `name="viewport"`,
	} {
		if !strings.Contains(html, want) {
			t.Errorf("%q is not in the report", want)
		}
	}
	if n := strings.Count(html, "<svg"); n != 8 {
		t.Errorf("%d pictures, want 4 in 2 widths", n)
	}
	loads := regexp.MustCompile(`(?i)<script|<link|<img|<iframe|@import|url\(|(src|href)=`)
	if found := loads.FindString(html); found != "" {
		t.Errorf("the page loads something: %q", found)
	}
	// Every color name in the pictures must be defined in the style sheet, for light and for dark mode.
	for _, name := range regexp.MustCompile(`var\((--\w+)\)`).FindAllStringSubmatch(html, -1) {
		if strings.Count(html, name[1]+":") < 2 {
			t.Errorf("%s has no colour in light or in dark", name[1])
		}
	}
	if strings.Contains(html, "#0000") {
		t.Error("a picture has a colour of its own")
	}
}

// report works for every load.
func TestReportOfEveryLoad(t *testing.T) {
	t.Parallel()
	for _, load := range synthetic.Loads {
		html := reported(t, "-load", load.Name, "-requests", "300", "-limit", "20/1m", "-redis", redistest.Shared(t).URL())
		if !strings.Contains(html, load.Name) || !strings.Contains(html, "agreed with the models") {
			t.Errorf("%s: the report does not say so", load.Name)
		}
	}
}

// Some loads send the whole limit, however many requests are asked for.
func TestReportOfALoadThatIsTooLarge(t *testing.T) {
	for _, load := range []string{"boundary", "adversary"} {
		_, _, err := command(t, nil, "report", "-load", load, "-requests", "5000", "-limit", "1000000000/1h")
		if err == nil || !strings.Contains(err.Error(), "-load "+load+" sends the whole limit") {
			t.Errorf("%s: %v", load, err)
		}
	}
}

// Keys are untrusted: text that clients send does not become markup of the page.
func TestReportEscapesKeys(t *testing.T) {
	file := filepath.Join(t.TempDir(), "access.log")
	line := `<b>x</b>"><script>alert(1)</script> - - [14/Nov/2023:22:13:20 +0000] "GET / HTTP/1.0" 200 1` + "\n"
	if err := os.WriteFile(file, []byte(strings.Repeat(line, 30)), 0o600); err != nil {
		t.Fatal(err)
	}
	html := reported(t, "-find", "0", "-limit", "5/1m", "-redis", redistest.Shared(t).URL(), file)
	if strings.Contains(html, "<script") || strings.Contains(html, "<b>x") || !strings.Contains(html, "&lt;b&gt;x") {
		t.Error("a key is in the page as it came")
	}
}

// A key does not change the direction of the text around it. A long key is shown as a hash, and the
// page says that it is one.
func TestReportShowsKeysReadably(t *testing.T) {
	file := filepath.Join(t.TempDir(), "access.log")
	log := strings.Repeat(`{"time":1795348800,"key":"a\u202eb"}`+"\n"+`{"time":1795348800,"key":"user 17 \u00e9"}`+"\n"+`{"time":1795348800,"key":"`+strings.Repeat("x", 300)+`"}`+"\n", 30)
	if err := os.WriteFile(file, []byte(log), 0o600); err != nil {
		t.Fatal(err)
	}
	html := reported(t, "-find", "0.9", "-limit", "5/1m", "-redis", redistest.Shared(t).URL(), file)
	for _, want := range []string{`&#34;a\u202eb&#34;`, ">user 17 é<", "a long key, with hash "} {
		if !strings.Contains(html, want) {
			t.Errorf("%s is not in the report", want)
		}
	}
	if strings.Contains(html, "\u202e") {
		t.Error("a key turns the text around it")
	}
}

// A need of few wrong decisions is met on the log itself, at the lowest cost.
func TestReportOfFewWrongDecisions(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "access.log")
	if err := os.WriteFile(file, []byte(morning(t, 3000)), 0o600); err != nil {
		t.Fatal(err)
	}
	html := reported(t, "-limit", "5/1m", "-wrong", "2%", "-redis", redistest.Shared(t).URL(), file)
	for _, want := range []string{"the cheapest with at most 2 % wrong decisions on the given traffic; not", "fixed-window which decides", "3000 requests of"} {
		if !strings.Contains(html, want) {
			t.Errorf("%q is not in the report", want)
		}
	}
}

// A need that nothing meets is refused before the log is read. If the need states wrong decisions, and not how late
// capacity may return, a configuration that is late is not refused.
func TestReportOfANeedWithWrongDecisions(t *testing.T) {
	t.Parallel()
	need := []string{"-o", "-", "-limit", "10/1m", "-above", "0", "-wrong", "50%", "-bytes"}
	if _, err := parseReportFlags(append(need, "190"), io.Discard); err != nil {
		t.Errorf("gcra:burst=1 would do: %v", err)
	}
	if _, err := parseReportFlags(append(need, "170"), io.Discard); !errors.Is(err, plan.ErrUnmet) {
		t.Errorf("error %v, want %v", err, plan.ErrUnmet)
	}
}

// A percentage is the same part as the fraction: 0.7 % of 1,000 requests are 7.
func TestPercentages(t *testing.T) {
	for n := range 1000 {
		percentage := fmt.Sprintf("%d.%d%%", n/10, n%10)
		if got, err := part(percentage); err != nil || got != float64(n)/1000 {
			t.Errorf("%s: %v, %v", percentage, got, err)
		}
	}
	if got, err := part("5e-1 %"); err != nil || got != 0.005 {
		t.Error(got, err)
	}
}

// On a real Redis, plan measures bytes and Redis's own times, and leaves nothing behind.
func TestPlanOnARealRedis(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t) // TestPlanOfWhatIsHeld has keys of plan on the shared one
	stdout, stderr, err := command(t, nil, "plan", "-json", "-limit", "1000/1m", "-keys", "1000000", "-redis", redis.URL())
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	var table planned
	if err := json.Unmarshal([]byte(stdout), &table); err != nil {
		t.Fatal(err)
	}
	candidates, err := plan.Candidates(limit.PerMinute(1000))
	if err != nil || len(table.Candidates) != len(candidates) {
		t.Fatalf("%d candidates of %d, %v", len(table.Candidates), len(candidates), err)
	}
	for i, got := range table.Candidates {
		c := candidates[i]
		near := func(measured, calculated int64) bool {
			return measured*10 >= calculated*9 && measured*10 <= calculated*11
		}
		if got.Configuration != c.String() || !near(got.BytesAtRest, c.AtRest(0)) || !near(got.BytesFull, c.Full(0)) || got.TotalFull != got.BytesFull*1_000_000 {
			t.Errorf("%+v, calculated %d and %d", got, c.AtRest(0), c.Full(0))
		}
		if got.AllowedMicros <= 0 || got.AllowedMicros > 10_000 || got.DeniedMicros <= 0 {
			t.Errorf("%s: %v µs allowed, %v denied", got.Configuration, got.AllowedMicros, got.DeniedMicros)
		}
	}
	if left := redis.Client(t).Keys(t.Context(), "tlplan:*").Val(); len(left) > 0 {
		t.Errorf("left behind: %d keys, such as %q", len(left), left[0])
	}
}

// For a concurrency limit, plan measures what processes hold, and explains how the limit differs from
// one with a window. For any other limit, it calculates the bytes of open holds. Commands refuse a
// limit that a log cannot show.
func TestPlanOfWhatIsHeld(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	for _, quota := range []int64{1, 10, 200} {
		l := limit.Concurrent(quota)
		stdout, stderr, err := command(t, nil, "plan", "-json", "-limit", l.String(), "-redis", redis.URL())
		if err != nil {
			t.Fatalf("%v\n%s", err, stderr)
		}
		var table planned
		if err := json.Unmarshal([]byte(stdout), &table); err != nil || len(table.Candidates) != 1 || len(table.Picks) != 1 {
			t.Fatalf("%v\n%s", err, stdout)
		}
		c, got := plan.Candidate{Limit: l, Algorithm: limit.Concurrency()}, table.Candidates[0]
		for measured, calculated := range map[int64]int64{got.BytesAtRest: c.AtRest(0), got.BytesFull: c.Full(0)} {
			if measured*10 < calculated*9 || measured*10 > calculated*11 {
				t.Errorf("%v: %d bytes measured, %d calculated", l, measured, calculated)
			}
		}
		if got.WorstCase != quota || got.AllowedMicros <= 0 || got.DeniedMicros <= 0 {
			t.Errorf("%v: %+v", l, got)
		}
	}
	says(t, []string{"plan", "-limit", "10/concurrent"}, "nothing stated concurrency 456 10", "no window", "22 bytes for each process")
	stdout := says(t, []string{"plan", "-limit", "5000/1m", "-holds", "20"}, "20 of each key take")
	says(t, []string{"plan", "-limit", "5000/1m", "-holds", "20"}, "up to 20000 units, four times the limit",
		fmt.Sprintf("A log counts up to 20000, and then takes %d bytes", plan.Candidate{Limit: limit.PerMinute(5000), Algorithm: limit.SlidingLog()}.Bytes(20_000, 0)))
	says(t, []string{"plan", "-limit", "90000/1m", "-holds", "20"}, "up to 360000 units", "A log counts up to 100000,")
	if stdout := says(t, []string{"plan", "-limit", "200000/1m", "-holds", "20"}, "up to 800000 units"); strings.Contains(stdout, "A log") {
		t.Errorf("of a limit that no log holds:\n%s", stdout)
	}
	says(t, []string{"plan", "-limit", "1000/1m,burst=2000", "-holds", "20"}, "up to 8000 units, four times the burst")
	if stdout := says(t, []string{"plan", "-limit", "5000/1m"}); strings.Contains(stdout, "four times") {
		t.Errorf("of a limit without holds:\n%s", stdout)
	}
	if strings.Contains(stdout, "concurrency limit") {
		t.Errorf("of a limit with a window:\n%s", stdout)
	}
	if stdout, _, err := command(t, nil, "plan", "-json", "-limit", "5000/1m", "-holds", "20"); err != nil || !strings.Contains(stdout, fmt.Sprintf(`"holds_bytes": %d`, plan.HoldsBytes(20, 0))) || !strings.Contains(stdout, `"with_debt": 20000`) {
		t.Errorf("%v\n%s", err, stdout)
	}
	for want, args := range map[string][]string{
		"replay needs a limit with a window, like 10/1m; \"tierlimit plan -limit 10/concurrent\"": {"replay", "-limit", "10/concurrent"},
		"report needs a limit with a window":                                                      {"report", "-limit", "10/concurrent"},
		"demo needs a limit with a window":                                                        {"demo", "-limit", "10/concurrent"},
		"must be between 0 and 1000":                                                              {"plan", "-holds", "1001"},
		"whose units are held until they are released":                                            {"plan", "-holds", "1", "-limit", "10/concurrent"},
	} {
		var misuse usageError
		if _, _, err := command(t, nil, args...); !errors.As(err, &misuse) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}

// Without a Redis to measure, plan shows no times. It prints its choice first, and for a stated need
// its reasons.
func TestPlanEmbedded(t *testing.T) {
	t.Parallel()
	stdout, _, err := command(t, nil, "plan", "-limit", "5000/1m", "-above", "0", "-late", "2%")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"-redis URL measures", "gcra:burst=500", "1000000 keys", "the cheapest with never above the limit, at most 2 % of the window late; not"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("%q is not in:\n%s", want, stdout)
		}
	}
}

// If nothing meets a stated need, the command prints everything else and then ends with an error, so
// that a script sees the exit status. If no need is stated, some of the typical needs may stay unmet.
func TestPlanOfAnUnmetNeed(t *testing.T) {
	for _, args := range [][]string{{"plan", "-limit", "100/day@UTC", "-above", "0"}, {"plan", "-limit", "100/day@UTC", "-above", "0", "-json"}} {
		stdout, _, err := command(t, nil, args...)
		var misuse usageError
		if err == nil || errors.As(err, &misuse) || !strings.Contains(err.Error(), "nothing meets the need") || !strings.Contains(stdout, "fixed-window") {
			t.Errorf("%q: %v\n%s", args, err, stdout)
		}
	}
	if stdout, _, err := command(t, nil, "plan", "-limit", "100/day@UTC"); err != nil || !strings.Contains(stdout, "nothing") {
		t.Errorf("%v\n%s", err, stdout)
	}
}

// If the Redis for checking the models cannot be reached, report says so before it reads a log and
// simulates it.
func TestReportLooksForItsRedisFirst(t *testing.T) {
	_, _, err := command(t, strings.NewReader("no log"), "report", "-redis", "redis://127.0.0.1:1", "-o", "-", "-")
	if err == nil || !strings.Contains(err.Error(), "is Redis running") {
		t.Errorf("error %v", err)
	}
}

// If the output is a link to a file that does not exist yet, the link stays, and the report is written
// to that file.
func TestReportThroughALink(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	target, link := filepath.Join(folder, "target.html"), filepath.Join(folder, "link.html")
	if err := os.Symlink("target.html", link); err != nil {
		t.Fatal(err)
	}
	if _, _, err := command(t, nil, "report", "-load", "poisson", "-requests", "10", "-limit", "3000000/1h", "-above", "0", "-late", "0", "-o", link); err == nil {
		t.Error("nothing meets the need, and no error")
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) != 1 || left[0].Name() != "link.html" {
		t.Errorf("before a report is made there are %v (%v), want the link only", left, err)
	}
	if _, _, err := command(t, nil, "report", "-load", "poisson", "-requests", "300", "-o", link); err != nil {
		t.Fatal(err)
	}
	if is, err := os.Lstat(target); err != nil || !is.Mode().IsRegular() || is.Size() == 0 {
		t.Errorf("the file that the link leads to: %v, %v", is, err)
	}
	if to, err := os.Readlink(link); to != "target.html" {
		t.Errorf("the link leads to %q, %v", to, err)
	}
}

// The log that is read is not overwritten, under whichever name the output is given.
func TestReportKeepsItsLog(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	log, link := filepath.Join(folder, "requests.log"), filepath.Join(folder, "link.log")
	const line = "2026-11-22T12:00:00Z alice\n"
	if err := os.WriteFile(log, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(log, link); err != nil {
		t.Fatal(err)
	}
	for _, out := range []string{log, link} {
		if _, _, err := command(t, nil, "report", "-o", out, log); err == nil || !strings.Contains(err.Error(), "that is the log to read") {
			t.Errorf("-o %s: error %v", out, err)
		}
		if text, err := os.ReadFile(log); err != nil || string(text) != line {
			t.Fatalf("-o %s: the log is now %.40q, %v", out, text, err)
		}
	}
}

// Made-up loads for long windows last for centuries. A limiter cannot count that far, and decides what comes
// before.
func TestReportOfALoadOfCenturies(t *testing.T) {
	t.Parallel()
	for _, load := range []string{"adversary", "boundary"} {
		html := reported(t, "-load", load, "-limit", "1/8784h", "-requests", "5000")
		if !strings.Contains(html, "requests went through a limiter") {
			t.Errorf("%s: no request went through a limiter", load)
		}
	}
}
