package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/cmd/tierlimit/internal/nasa"
	"github.com/tierlimit/tierlimit/internal/redistest"
)

// asCommand is the environment variable that makes the test binary run as the command.
const asCommand = "TIERLIMIT_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
		return
	}
	if err := os.Unsetenv("REDIS_URL"); err != nil { // the command uses it by default
		panic(err)
	}
	redistest.Main(m)
}

// command runs the command with the given arguments and returns what it printed.
func command(t *testing.T, stdin io.Reader, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errOut bytes.Buffer
	err = run(context.Background(), args, stdin, &out, &errOut)
	return out.String(), errOut.String(), err
}

func mustReplay(t *testing.T, stdin io.Reader, args ...string) report {
	t.Helper()
	stdout, stderr, err := command(t, stdin, append([]string{"replay", "-json"}, args...)...)
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	var rep report
	if err := json.Unmarshal([]byte(stdout), &rep); err != nil {
		t.Fatal(err)
	}
	return rep
}

// morning returns the first lines of the built-in day.
func morning(t *testing.T, lines int) string {
	t.Helper()
	unzipped, err := gzip.NewReader(nasa.Open())
	if err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(unzipped)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(strings.SplitAfter(string(all), "\n")[:lines], "")
}

// This test replays the whole built-in day on a real Redis, and its first hours with other algorithms
// and other numbers of instances. The log decides like the textbook, and fixed windows show their
// bursts around boundaries.
func TestReplayTheBuiltInDay(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t) // a separate one, so that other tests' keys do not seem to be left behind
	url := server.URL()
	const part = 4000
	hours := filepath.Join(t.TempDir(), "access.log")
	if err := os.WriteFile(hours, []byte(morning(t, part)), 0o600); err != nil {
		t.Fatal(err)
	}
	type day struct {
		algorithms []string
		file       string // "" for the whole day
	}
	runs := map[string]day{
		"1":  {[]string{"sliding-log"}, ""},
		"4":  {[]string{"sliding-log", "sliding-counter", "gcra", "fixed-window"}, hours},
		"16": {[]string{"sliding-log"}, hours},
	}
	if raceDetector { // this run covers everything that could race in the others
		runs = map[string]day{"4": {[]string{"sliding-log"}, hours}}
	}
	t.Run("replays", func(t *testing.T) { // returns when all replays have ended
		for instances, day := range runs {
			t.Run(instances+" instances", func(t *testing.T) {
				t.Parallel()
				args, algorithms := []string{"-redis", url, "-instances", instances}, day.algorithms
				for _, a := range algorithms {
					args = append(args, "-algorithm", a)
				}
				requests, denied := 30969, 950
				if day.file != "" {
					args, requests, denied = append(args, day.file), part, 50
				}
				rep := mustReplay(t, nil, args...)
				if rep.Requests != requests || day.file == "" && rep.Keys != 2365 || rep.BadLines != 0 || rep.Limit != 10 || rep.WindowSeconds != 60 || rep.Redis != url {
					t.Errorf("%+v", rep)
				}
				for i, r := range rep.Results {
					if r.Algorithm != algorithms[i] || r.Allowed+r.Denied != rep.Requests || r.RedisCalls+r.DecidedLocally != rep.Requests {
						t.Errorf("%+v does not add up", r)
					}
					if r.BytesPerKey == nil || *r.BytesPerKey < 50 || *r.BytesPerKey > 1000 {
						t.Errorf("%s: bytes per key %v", r.Algorithm, r.BytesPerKey)
					}
					switch r.Algorithm {
					case "sliding-log":
						if r.WronglyAllowed != 0 || r.WronglyDenied != 0 || r.WorstWindow != 10 || r.Denied < denied || r.Denied > 1100 {
							t.Errorf("the log is not exact: %+v", r)
						}
					case "fixed-window", "gcra":
						if r.WorstWindow <= 10 || r.WorstWindow > 20 || r.Algorithm == "gcra" && r.WorstWindow > 19 {
							t.Errorf("%s: worst window %d, want a burst above 10", r.Algorithm, r.WorstWindow)
						}
					default:
						if r.WorstWindow > 10 {
							t.Errorf("%s: worst window %d, stated bound 10", r.Algorithm, r.WorstWindow)
						}
					}
				}
			})
		}
	})
	client := server.Client(t)
	if keys := client.Keys(context.Background(), "tierlimit-replay-*").Val(); len(keys) > 0 {
		t.Errorf("left behind in Redis: %d keys, such as %q", len(keys), keys[0])
	}
}

// The embedded Redis gives the same decisions as a real one, for a log from a file and from standard
// input, plain and gzipped.
func TestReplayEmbeddedEqualsReal(t *testing.T) {
	t.Parallel()
	requests := 1500
	if raceDetector {
		requests = 300
	}
	log := morning(t, requests)
	plain, zipped := filepath.Join(t.TempDir(), "access.log"), filepath.Join(t.TempDir(), "access.log.gz")
	if err := os.WriteFile(plain, []byte(log), 0o600); err != nil {
		t.Fatal(err)
	}
	var buffer bytes.Buffer
	w := gzip.NewWriter(&buffer)
	if _, err := io.WriteString(w, log); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(zipped, buffer.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	common := []string{"-limit", "5/30s", "-key", "host+path"}
	embedded := mustReplay(t, nil, append(common, plain)...)
	reports := map[string]report{
		"real Redis": mustReplay(t, nil, append(common, "-redis", redistest.Shared(t).URL(), zipped)...),
		"stdin":      mustReplay(t, strings.NewReader(log), append(common, "-")...),
	}
	if embedded.Redis != "embedded" || len(embedded.Results) != 4 || embedded.Requests != requests {
		t.Errorf("%+v", embedded)
	}
	for name, rep := range reports {
		for i, r := range rep.Results {
			r.BytesPerKey = nil // the embedded Redis cannot measure it
			if r != embedded.Results[i] {
				t.Errorf("%s: %+v, embedded: %+v", name, r, embedded.Results[i])
			}
		}
	}
}

// The parameters that are requested are the ones that are replayed and reported.
func TestReplayDials(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "access.log")
	if err := os.WriteFile(file, []byte(morning(t, 3000)), 0o600); err != nil {
		t.Fatal(err)
	}
	rep := mustReplay(t, nil, "-redis", redistest.Shared(t).URL(),
		"-algorithm", "sliding-counter:k=1,estimate", "-algorithm", "sliding-counter:k=60,strict",
		"-algorithm", "gcra:burst=10%", "-algorithm", "gcra:burst=10", file)
	want := []string{"sliding-counter:k=1,estimate", "sliding-counter:k=60,strict", "gcra:burst=10%", "gcra:burst=10"}
	for i, r := range rep.Results {
		if r.Configuration != want[i] || !strings.HasPrefix(want[i], r.Algorithm) {
			t.Errorf("%+v, want %s", r, want[i])
		}
	}
	if small, large := rep.Results[2], rep.Results[3]; small.Denied <= large.Denied {
		t.Errorf("a burst of 1 denies %d, a burst of 10 denies %d", small.Denied, large.Denied)
	}
}

func TestReplayReportsBadLines(t *testing.T) {
	log := morning(t, 50) + "this is no log line\n"
	stdout, stderr, err := command(t, strings.NewReader(log), "replay", "-algorithm", "gcra", "-")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(stderr, "1 of 51 lines") || !strings.Contains(stderr, "this is no log line") {
		t.Errorf("on standard error: %s", stderr)
	}
	for _, want := range []string{"50 requests", "1 bad line;", "embedded", "gcra"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("%q is not in the table:\n%s", want, stdout)
		}
	}
}

// A line of a machine whose clock is wrong does not end the replay: a limiter cannot count at its time.
func TestReplayLeavesOutTimesOfTheFarFuture(t *testing.T) {
	t.Parallel()
	log := "2026-11-22T12:00:00Z a\n2026-11-22T12:00:01Z a\n2150-01-01T00:00:00Z a\n2150-01-01T00:00:01Z a\n2100-12-31T23:59:58Z a\n2100-12-31T23:59:59Z a\n"
	stdout, stderr, err := command(t, strings.NewReader(log), "replay", "-limit", "1/1h", "-")
	if err != nil || !strings.Contains(stdout, "4 requests of 1 key (host), 2 bad lines") {
		t.Errorf("%v\n%s%s", err, stdout, stderr)
	}
}

func TestMistakesOnTheCommandLine(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		args  []string
		words []string
	}{
		"no command":        {nil, []string{"no command"}},
		"unknown command":   {[]string{"reply"}, []string{`"reply"`, "tierlimit help"}},
		"show of no key":    {[]string{"show", "-redis", "redis://127.0.0.1:1"}, []string{"no key"}},
		"show of no rule":   {[]string{"show", "-redis", "redis://127.0.0.1:1", "alice"}, []string{`"alice"`, "-rules"}},
		"rules and limit":   {[]string{"show", "-redis", "redis://127.0.0.1:1", "-rules", "r.yaml", "-limit", "5/1m", "alice"}, []string{"r.yaml", "5/1m"}},
		"bad rule name":     {[]string{"show", "-redis", "redis://127.0.0.1:1", "a rule", "k"}, []string{`"a rule"`}},
		"top of no rule":    {[]string{"top", "-redis", "redis://127.0.0.1:1"}, []string{"no rule"}},
		"top of a prefix":   {[]string{"top", "-redis", "redis://127.0.0.1:1", "-prefix", "a*", "r"}, []string{`"a*"`}},
		"top of nothing":    {[]string{"top", "-redis", "redis://127.0.0.1:1", "r"}, []string{"127.0.0.1:1", "is Redis running"}},
		"unknown flag":      {[]string{"replay", "-speed", "2"}, []string{"-speed"}},
		"bad limit":         {[]string{"replay", "-limit", "ten"}, []string{`"ten"`, "10/1m"}},
		"zero window":       {[]string{"replay", "-limit", "10/0s"}, []string{"window is 0s"}},
		"bad algorithm":     {[]string{"replay", "-algorithm", "token-bucket"}, []string{`"token-bucket"`, "sliding-log"}},
		"bad parameter":     {[]string{"replay", "-algorithm", "gcra:burst=lots"}, []string{`"lots"`, "10%"}},
		"burst of a log":    {[]string{"replay", "-algorithm", "sliding-log:burst=5"}, []string{"only gcra"}},
		"bad key":           {[]string{"replay", "-key", "agent"}, []string{`"agent"`, "host+path"}},
		"bad cost":          {[]string{"replay", "-cost", "tokens"}, []string{`"tokens"`, "bytes"}},
		"no instances":      {[]string{"replay", "-instances", "0"}, []string{"0", "between 1 and 1000"}},
		"bad URL":           {[]string{"replay", "-redis", "http://127.0.0.1"}, []string{"redis://"}},
		"Redis not there":   {[]string{"replay", "-redis", "redis://127.0.0.1:1"}, []string{"127.0.0.1:1", "is Redis running"}},
		"two files":         {[]string{"replay", "a", "b"}, []string{"one FILE"}},
		"no such file":      {[]string{"replay", "does-not-exist.log"}, []string{"does-not-exist.log"}},
		"plan of a file":    {[]string{"plan", "access.log"}, []string{"flags only", "access.log"}},
		"no keys":           {[]string{"plan", "-keys", "0"}, []string{"-keys 0"}},
		"bad part":          {[]string{"plan", "-above", "some"}, []string{`"some"`, "5%"}},
		"negative part":     {[]string{"plan", "-late", "-1%"}, []string{"Late is at most -0.01"}},
		"bad load":          {[]string{"report", "-load", "heavy"}, []string{`"heavy"`, "flash-crowd"}},
		"calendar":          {[]string{"report", "-limit", "10/day@UTC"}, []string{"10/day@UTC", "one way"}},
		"load and file":     {[]string{"report", "-load", "poisson", "a.log"}, []string{"poisson", "a.log"}},
		"load and key":      {[]string{"report", "-load", "poisson", "-key", "path"}, []string{"-load poisson", "-key"}},
		"load and host":     {[]string{"report", "-key", "host", "-load", "poisson"}, []string{"-load poisson", "-key"}},
		"load and bounds":   {[]string{"report", "-load", "poisson", "-max-keys", "5"}, []string{"-load poisson", "-max-keys"}},
		"no bytes":          {[]string{"plan", "-bytes", "0"}, []string{`"0"`, "-bytes", "at least 1"}},
		"no requests":       {[]string{"report", "-load", "poisson", "-requests", "0"}, []string{"-requests 0"}},
		"requests of a log": {[]string{"report", "-requests", "10", "a.log"}, []string{"-requests 10", "-load"}},
		"find too much":     {[]string{"report", "-find", "110%"}, []string{"-find 1.1"}},
		"wrong by whom":     {[]string{"report", "-load", "adversary", "-wrong", "1%"}, []string{"-wrong", "of its own"}},
		"limits for whom":   {[]string{"report", "-load", "adversary", "-find", "1%"}, []string{"-find", "of its own"}},
		"nowhere to write":  {[]string{"report", "-load", "poisson", "-requests", "100", "-o", "no/such/dir.html"}, []string{"no/such/dir.html"}},
		"unmet need":        {[]string{"report", "-load", "poisson", "-requests", "100", "-above", "0", "-bytes", "100"}, []string{"nothing meets the need"}},
		"demo too fast":     {[]string{"demo", "-speed", "1001"}, []string{"-speed 1001", "between 1 and 1000"}},
		"demo of days":      {[]string{"demo", "-limit", "10/day@UTC"}, []string{"10/day@UTC", "20/10s"}},
		"demo nowhere":      {[]string{"demo", "-addr", "127.0.0.1:99999"}, []string{"-addr", "99999"}},
		"demo of no Redis":  {[]string{"demo", "-addr", "127.0.0.1:0", "-redis", "redis://127.0.0.1:1"}, []string{"127.0.0.1:1", "is Redis running"}},
		"demo of two files": {[]string{"demo", "a", "b"}, []string{"one FILE"}},
		"nothing to replay": {[]string{"replay", "-"}, []string{"standard input", "no request"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := command(t, strings.NewReader("\n"), tc.args...)
			if err == nil {
				t.Fatal("no error")
			}
			for _, word := range tc.words {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%q is not in: %v", word, err)
				}
			}
		})
	}
	for _, name := range []string{"show", "top", "check", "version", "replay", "plan", "report", "demo"} {
		if stdout, _, err := command(t, nil, name, "-h"); !errors.Is(err, flag.ErrHelp) || !strings.Contains(stdout, "Usage: tierlimit "+name) {
			t.Errorf("%s -h: %v", name, err)
		}
	}
}

func TestPasswordsAreNotShown(t *testing.T) {
	// Some commands connect to Redis only after they have read the log and simulated it.
	file := filepath.Join(t.TempDir(), "access.log")
	if err := os.WriteFile(file, []byte(morning(t, 10)), 0o600); err != nil {
		t.Fatal(err)
	}
	log := map[string][]string{"replay": {file}, "report": {file}, "demo": {file}}
	if _, shown, err := parseRedisURL("redis://user:s3cret@127.0.0.1:6379/0"); err != nil || shown != "redis://127.0.0.1:6379/0" {
		t.Error(shown, err)
	}
	// The text before a # would be taken for a host and its port, and shown as such.
	if _, shown, err := parseRedisURL("redis://user:57#33@127.0.0.1:1"); err == nil || strings.Contains(shown+err.Error(), "57") {
		t.Error(shown, err)
	}
	for _, name := range []string{"replay", "report", "plan", "demo", "show", "top"} {
		for _, url := range []string{
			"redis://user:s3cret@127.0.0.1:1", "redis://user:s3cret%zz@127.0.0.1:1", "redis://user:s3 s3cret@127.0.0.1:1",
			"redis://user:12#s3cret@127.0.0.1:1", "redis://user:12?s3cret@127.0.0.1:1", "redis://user:12/s3cret@127.0.0.1:1",
			"redis://user:s3cret@127.0.0.1:port", "redis://user:s3cret@127.0.0.1:1/first", "redis://:s3cret@127.0.0.1:1#",
			"user:s3cret@127.0.0.1:1", "//user:s3cret@127.0.0.1:1", "s3cret", "http://user:s3cret@127.0.0.1", "redis://user:s3cret",
		} {
			args := []string{name, "-redis", url}
			switch name {
			case "demo":
				args = append(args, "-addr", "127.0.0.1:0")
			case "show":
				args = append(args, "rule", "key")
			case "top":
				args = append(args, "rule")
			}
			stdout, stderr, err := command(t, nil, append(args, log[name]...)...)
			if err == nil || strings.Contains(fmt.Sprint(stdout, stderr, err), "s3cret") {
				t.Errorf("%s -redis %s: %v\n%s%s", name, url, err, stdout, stderr)
			}
		}
		t.Setenv("REDIS_URL", "redis://user:s3cret@127.0.0.1:1")
		if stdout, stderr, err := command(t, nil, name, "-h"); strings.Contains(fmt.Sprint(stdout, stderr, err), "s3cret") {
			t.Errorf("%s -h shows it:\n%s%s", name, stdout, stderr)
		}
	}
}

// If a log is too large, the error says what to do, in every command that reads a log.
func TestLogsAreBounded(t *testing.T) {
	log := morning(t, 100)
	for _, name := range []string{"replay", "report", "demo"} {
		for flag, want := range map[string]string{"-max-keys": "too many distinct keys: more than 3, in the first", "-max-requests": "too many requests: more than 3"} {
			_, _, err := command(t, strings.NewReader(log), name, "-key", "path", flag, "3", "-")
			var misuse usageError
			if !errors.As(err, &misuse) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "raise "+flag) {
				t.Errorf("%s %s: %v", name, flag, err)
			}
			if _, _, err := command(t, nil, name, flag, "0"); !errors.As(err, &misuse) {
				t.Errorf("%s %s 0: %v", name, flag, err)
			}
		}
	}
}

// replay reads users and costs from plain lines and from JSON, and costs from bytes.
func TestReplayUsersAndCosts(t *testing.T) {
	const at = "2026-11-22T12:00:0"
	plain := at + "0Z alice 6\n" + at + "1Z alice 6\n" + at + "2Z alice 4\n" + at + "3Z bob 11\n" + at + "4Z bob\n"
	logs := map[string]string{
		"plain": plain,
		"JSON": `{"time":"` + at + `0Z","key":"alice","cost":6}` + "\n" + `{"time":"` + at + `1Z","key":"alice","cost":6}` + "\n" +
			`{"time":"` + at + `2Z","key":"alice","cost":4}` + "\n" + `{"time":"` + at + `3Z","key":"bob","cost":11}` + "\n" + `{"time":"` + at + `4Z","key":"bob"}`,
	}
	access := ""
	for _, r := range [][2]string{{"alice", "6"}, {"alice", "6"}, {"alice", "4"}, {"bob", "11"}, {"bob", "1"}} {
		access += `10.0.0.1 - ` + r[0] + ` [22/Nov/2026:12:00:00 +0000] "GET / HTTP/1.1" 200 ` + r[1] + "\n"
	}
	for name, args := range map[string][]string{"plain": nil, "JSON": nil, "access": {"-key", "user", "-cost", "bytes"}} {
		log := logs[name]
		if name == "access" {
			log = access
		}
		rep := mustReplay(t, strings.NewReader(log), append(args, "-limit", "10/1m", "-algorithm", "sliding-log", "-")...)
		r := rep.Results[0]
		if rep.Requests != 5 || rep.Keys != 2 || r.NeverFit != 1 || r.WronglyAllowed+r.WronglyDenied != 0 || r.Allowed > 4 {
			t.Errorf("%s: %+v", name, rep)
		}
		if name != "access" && (r.Allowed != 3 || r.Denied != 2 || r.WorstWindow != 10) { // spread at random
			t.Errorf("%s: %+v", name, r)
		}
	}
	// A limit that only some algorithms support is replayed under those algorithms.
	rep := mustReplay(t, strings.NewReader(plain), "-limit", "1000000/1m", "-")
	if len(rep.Results) != 3 || rep.Results[0].Algorithm == "sliding-log" {
		t.Errorf("%+v", rep.Results)
	}
	for _, name := range []string{"report", "demo"} {
		_, _, err := command(t, strings.NewReader(plain), name, "-")
		if err == nil || !strings.Contains(err.Error(), "has costs") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// plan prints its choice before the table of candidates, and shows no times that it did not measure.
func TestPlanSaysItsChoiceFirst(t *testing.T) {
	stdout, _, err := command(t, nil, "plan", "-limit", "10/1m")
	if err != nil {
		t.Fatal(err)
	}
	if choice, table := strings.Index(stdout, "nothing stated"), strings.Index(stdout, "configuration"); choice < 0 || choice > table || strings.Contains(stdout, "µs") {
		t.Error(stdout)
	}
	stdout, _, err = command(t, nil, "plan", "-limit", "10/1m", "-json")
	if err != nil || strings.Contains(stdout, "_us") {
		t.Errorf("%v\n%s", err, stdout)
	}
}

// Nobody waits for a replay's decisions, so a Redis that does not answer for a while does not end the
// replay.
func TestReplayWaitsForASlowRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	const pause, attempts = 7 * time.Second, 5
	for attempt := 1; ; attempt++ {
		paused := make(chan error, 1)
		go func() {
			for client.DBSize(t.Context()).Val() < 50 { // until the replay has begun
				time.Sleep(time.Millisecond)
			}
			paused <- client.Do(t.Context(), "CLIENT", "PAUSE", pause.Milliseconds()).Err()
		}()
		started := time.Now()
		rep := mustReplay(t, strings.NewReader(morning(t, 5000)), "-redis", server.URL(), "-algorithm", "gcra", "-")
		took := time.Since(started)
		if err := <-paused; err != nil {
			t.Fatal(err)
		}
		if r := rep.Results[0]; r.Allowed+r.Denied != 5000 {
			t.Errorf("%d allowed and %d denied of 5000", r.Allowed, r.Denied)
		}
		if took >= pause {
			return
		}
		// On a busy machine the replay may end before the goroutine that should pause it runs.
		if attempt == attempts {
			t.Fatalf("the replay took %v: it had ended before the pause", took)
		}
		redistest.Eventually(t, "the pause is over", func() bool { return client.FlushAll(t.Context()).Err() == nil })
	}
}
