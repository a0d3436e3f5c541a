package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// full is an output with room for the given number of bytes.
type full int

var errFull = errors.New("no space left")

func (f *full) Write(p []byte) (int, error) {
	if *f -= full(len(p)); *f < 0 {
		return 0, errFull
	}
	return len(p), nil
}

// If a command cannot write its output, it returns an error, whatever the output was.
func TestOutputThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(rules, []byte("rules:\n  search:\n    limit: 60/1m\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	server := redistest.Start(t)
	file := filepath.Join(t.TempDir(), "access.log")
	if err := os.WriteFile(file, []byte(morning(t, 5000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"help"}, {"version"}, {"replay", "-h"}, {"check", rules}, {"plan", "-limit", "10/concurrent"},
		{"show", "-redis", server.URL(), "search", "alice"}, {"top", "-redis", server.URL(), "search"},
		{"replay", "-redis", server.URL(), file}, {"replay", "-json", "-redis", server.URL(), file},
		{"report", "-load", "poisson", "-requests", "300", "-o", "-"},
	} {
		room := full(0)
		if err := execute(context.Background(), args, nil, &room, io.Discard); !errors.Is(err, errFull) {
			t.Errorf("%q: %v", args, err)
		}
	}
	if keys := server.Client(t).Keys(context.Background(), "*").Val(); len(keys) > 0 {
		t.Errorf("left behind in Redis: %d keys, such as %q", len(keys), keys[0])
	}
}

// When output cannot be written, the command is ended, once, and nothing more is written.
func TestCommandEndsWithItsOutput(t *testing.T) {
	room, failures := full(5), 0
	out := &output{to: &room, failed: func() { failures++ }}
	for _, want := range []error{nil, errFull, errFull} {
		if _, err := io.WriteString(out, "four"); !errors.Is(err, want) {
			t.Errorf("%v, not %v", err, want)
		}
	}
	if failures != 1 {
		t.Errorf("the command was ended %d times", failures)
	}
}

// An interrupted command ends even if it reads from a terminal or a pipe that sends nothing.
func TestInterruptedWhileReading(t *testing.T) {
	for _, name := range []string{"replay", "report", "demo"} {
		silent, writer := io.Pipe()
		ctx, interrupt := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- run(ctx, []string{name, "-"}, silent, io.Discard, io.Discard) }()
		if _, err := io.WriteString(writer, "1795348800 alice\n"); err != nil { // waits until the command reads
			t.Fatal(err)
		}
		interrupt()
		select {
		case err := <-ended:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("%s goes on to read", name)
		}
		_ = writer.Close()
	}
}

// Commands that use a Redis given by the user leave nothing in it.
func TestNothingIsLeftInRedis(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client(t)
	out := filepath.Join(t.TempDir(), "report.html")
	for _, args := range [][]string{
		{"plan", "-limit", "10/concurrent"}, {"report", "-load", "poisson", "-requests", "300", "-o", out}, {"demo", "-addr", "127.0.0.1:0"},
	} {
		ctx, end := context.WithCancel(t.Context())
		if args[0] == "demo" {
			time.AfterFunc(2*time.Second, end)
		}
		if err := run(ctx, append([]string{args[0], "-redis", server.URL()}, args[1:]...), nil, io.Discard, io.Discard); err != nil {
			t.Error(err)
		}
		end()
		if keys := client.Keys(context.Background(), "*").Val(); len(keys) > 0 {
			t.Errorf("%s: %d keys, such as %q", args[0], len(keys), keys[0])
		}
	}
}

// If Redis refuses a password, the error says so, and does not say that values are damaged.
func TestShowWithAWrongPassword(t *testing.T) {
	server := redistest.Start(t)
	client, ctx := server.Client(t), context.Background()
	charge(t, newLimiter(t, client).MustRule("search", limit.PerMinute(60)), "alice", 3)
	wrong := strings.Replace(server.URL(), "redis://", "redis://nobody:secret@", 1)
	for _, name := range []string{"show", "top"} {
		args := []string{name, "-redis", wrong, "search", "alice"}
		if name == "top" {
			args = args[:4]
		}
		if stdout, _, err := command(t, nil, args...); err == nil || !strings.Contains(err.Error(), "WRONGPASS") || stdout != "" {
			t.Errorf("%s: %q, %v", name, stdout, err)
		}
	}
	// Without permission for PTTL, a key is not shown as if it never expired.
	if err := client.Do(ctx, "ACL", "SETUSER", "reader", "on", ">pw", "~*", "+get", "+time", "+zrange").Err(); err != nil {
		t.Fatal(err)
	}
	reader := strings.Replace(server.URL(), "redis://", "redis://reader:pw@", 1)
	if stdout, _, err := command(t, nil, "show", "-redis", reader, "search", "alice"); err == nil || !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("%q, %v", stdout, err)
	}
}

// The error about a Redis that refuses writes does not say that it cannot be reached.
func TestARedisThatRefusesToWrite(t *testing.T) {
	server := redistest.Start(t, "--maxmemory", "1")
	for _, args := range [][]string{{"replay", "-algorithm", "gcra"}, {"demo", "-addr", "127.0.0.1:0"}} {
		_, _, err := command(t, strings.NewReader("1795348800 a\n"), append(args, "-redis", server.URL(), "-")...)
		if err == nil || !strings.Contains(err.Error(), server.Addr()+" cannot be used: OOM ") {
			t.Errorf("%s: %v", args[0], err)
		}
	}
	_, _, err := command(t, strings.NewReader("1795348800 a\n"), "replay", "-algorithm", "gcra", "-redis", "redis://127.0.0.1:1", "-")
	if err == nil || !strings.Contains(err.Error(), "is Redis running") {
		t.Error(err)
	}
	var log strings.Builder
	for i := range 50_000 {
		fmt.Fprintf(&log, "1795348800 key-%d\n", i)
	}
	small := redistest.Start(t, "--maxmemory", "4mb") // is full in the middle of the replay
	_, _, err = command(t, strings.NewReader(log.String()), "replay", "-algorithm", "gcra", "-redis", small.URL(), "-")
	if err == nil || !strings.Contains(err.Error(), small.Addr()+" cannot be used: OOM ") || !strings.Contains(err.Error(), "request ") {
		t.Error(err)
	}
}

// A failure is reported once, with advice, even if removing the written keys fails, too.
func TestALostRedisIsSaidOnce(t *testing.T) {
	_, _, err := command(t, nil, "plan", "-limit", "10/1m", "-redis", "redis://127.0.0.1:1")
	if err == nil || strings.Count(err.Error(), "connection refused") != 1 || !strings.Contains(err.Error(), "is Redis running") {
		t.Errorf("error %v", err)
	}
}

// A server that accepts connections and never answers is contacted once or twice. By default the client
// would try more often, and take 40 s.
func TestAServerThatDoesNotAnswer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	var accepted atomic.Int64
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			defer connection.Close()
			accepted.Add(1)
		}
	}()
	url := "redis://" + listener.Addr().String() + "?dial_timeout=100ms&read_timeout=100ms"
	for _, args := range [][]string{{"show", "-redis", url, "search", "alice"}, {"top", "-redis", url, "search"}} {
		accepted.Store(0)
		_, _, err := command(t, nil, args...)
		if err == nil || !strings.Contains(err.Error(), "does it want rediss://") || accepted.Load() > 2 {
			t.Errorf("%q: %d connections, error %v", args, accepted.Load(), err)
		}
	}
}

// The number one has the singular form.
func TestNumbersInWords(t *testing.T) {
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(rules, []byte("rules:\n  a:\n    limit: 5/1m\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	says(t, []string{"check", rules}, ": 1 rule, no mistakes")
	if _, _, err := command(t, nil, "check", filepath.Join(t.TempDir(), "none.yaml")); err == nil || err.Error() != "1 mistake in rules files" {
		t.Errorf("error %v", err)
	}
	const log = "2026-11-22T12:00:00.5Z alice 7\n"
	stdout, stderr, err := command(t, strings.NewReader(log+"this is no log line\n"), "replay", "-instances", "1", "-limit", "5/1m", "-algorithm", "gcra", "-")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"left out 1 of 2 lines,", "1 request of 1 key (host), 1 bad line; limit 5 per 1m; 1 instance\n", "above the limit: 1 request."} {
		if !strings.Contains(stderr+stdout, want) {
			t.Errorf("%q is not in\n%s%s", want, stderr, stdout)
		}
	}
	says(t, []string{"plan", "-limit", "1/1s", "-keys", "1", "-name", "1"}, "limit 1/1s; 1 key, with names of 1 byte\n")
	says(t, []string{"plan", "-limit", "100/1m,burst=2000", "-keys", "5434000"}, " 2099 1999 % 0 % 184 184 1000 MB 1000 MB")
	log1 := filepath.Join(t.TempDir(), "one.log")
	if err := os.WriteFile(log1, []byte("2026-11-22T12:00:00.5Z alice\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "one.html")
	says(t, []string{"report", "-limit", "1/1s", "-find", "0", "-o", out, log1}, "1 request of 1 key,", "At most 1 unit in any window", "would have limited 0 keys")
	page, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if wrong := regexp.MustCompile(`\b1 (requests|keys|units)\b`).Find(page); wrong != nil {
		t.Errorf("the page says %q", wrong)
	}
}

// A file that is not a rules file counts as one mistake, and the error names it.
func TestCheckOfOtherFiles(t *testing.T) {
	folder := t.TempDir()
	large := filepath.Join(folder, "large")
	if err := os.WriteFile(large, make([]byte, 300_000), 0o600); err != nil {
		t.Fatal(err)
	}
	_, stderr, err := command(t, nil, "check", folder, large, filepath.Join(folder, "none"))
	lines := strings.Split(strings.TrimSpace(stderr), "\n")
	if len(lines) != 3 || err == nil || !strings.Contains(err.Error(), "3 mistakes") {
		t.Fatalf("%v\n%s", err, stderr)
	}
	for i, name := range []string{folder, large, "none"} {
		if !strings.Contains(lines[i], name) {
			t.Errorf("%q is not in: %s", name, lines[i])
		}
	}
}

// Mistakes that can be found in the command line are reported before any work is done, with advice.
func TestMisuse(t *testing.T) {
	folder := t.TempDir()
	for _, tc := range []struct {
		args  []string
		words string
	}{
		{[]string{"replay", ""}, "FILE is empty"},
		{[]string{"report", ""}, "FILE is empty"},
		{[]string{"check", "a.yaml", ""}, "argument 2 is empty; is it a shell variable"},
		{[]string{"show", "search", ""}, "argument 2 is empty; is it a shell variable"},
		{[]string{"show", "", "user 17"}, "argument 1 is empty; is it a shell variable"},
		{[]string{"replay", "-instances", "many"}, `"many" for flag -instances: must be a whole number`},
		{[]string{"plan", "-keys", "1e6"}, `"1e6" for flag -keys: must be a whole number`},
		{[]string{"top", "-time", "5", "r"}, "must be a duration like 30s"},
		{[]string{"replay", "-algorithm", "gcra:burst="}, "the burst is missing"},
		{[]string{"replay", "-limit", "1000000/1m", "-algorithm", "sliding-log"}, "can hold at most 100000 units"},
		{[]string{"replay", "-limit", "5/day@UTC", "-algorithm", "gcra"}, "cannot count calendar windows"},
		{[]string{"replay", "-limit", "5/day@UTC", "-algorithm", "gcra:burst=10%"}, "a calendar limit has no burst"},
		{[]string{"report", "-wrong", "NaN"}, "-wrong NaN"},
		{[]string{"report", "-wrong", "-1%"}, "-wrong -0.01"},
		{[]string{"report", "-o", ""}, "-o is empty"},
		{[]string{"report", "-o", folder}, "directory"},
		{[]string{"report", "-load", "poisson", "-requests", "1", "-o", filepath.Join(folder, "r.html")}, "use a larger number"},
	} {
		var misuse usageError
		if _, _, err := command(t, nil, tc.args...); !errors.As(err, &misuse) || !strings.Contains(err.Error(), tc.words) {
			t.Errorf("%q: %v", tc.args, err)
		}
	}
	if files, err := os.ReadDir(folder); err != nil || len(files) > 0 {
		t.Errorf("left behind: %v, %v", files, err)
	}
	// A percentage of a large limit that overflows does not become some other burst.
	c, err := parseCandidate("gcra:burst=50000000%")
	if err != nil {
		t.Fatal(err)
	}
	if l, err := c.limit(limit.PerMinute(1_000_000_000_000)); err == nil {
		t.Errorf("it is %v", l)
	}
	// A percentage is rounded up, as by plan, so that a report and a plan of the same limit have the same burst.
	if c, err = parseCandidate("gcra:burst=10%"); err != nil {
		t.Fatal(err)
	}
	for quota, want := range map[int64]int64{1: 1, 15: 2, 20: 2, 21: 3} {
		if l, err := c.limit(limit.PerMinute(quota)); err != nil || l.Burst() != want {
			t.Errorf("10 %% of %d: %v, %v; want a burst of %d", quota, l, err, want)
		}
	}
}

// Requests that lack the field by which they are limited share a key, and the command says so.
func TestRequestsWithoutAKey(t *testing.T) {
	const log = `{"time":1795348800,"path":"/a"}` + "\n" + `{"time":1795348801,"host":"h","path":"/a"}` + "\n"
	for key, want := range map[string]string{
		"host": "1 of 2 requests without a host,", "host+path": "1 of 2 requests without a host,", "user": "2 of 2 requests without a user,", "path": "",
	} {
		_, stderr, err := command(t, strings.NewReader(log), "replay", "-algorithm", "gcra", "-key", key, "-")
		if err != nil || !strings.Contains(stderr, want) || want == "" && stderr != "" {
			t.Errorf("%s: %v\n%s", key, err, stderr)
		}
	}
	// If no request has it, the reason may be its name.
	for _, c := range [][3]string{
		{`{"time":1795348800,"caller":"a"}` + "\n", "host", `change that name to "key".`},
		{log, "user", `change that name to "user".`},
	} {
		if _, stderr, err := command(t, strings.NewReader(c[0]), "replay", "-algorithm", "gcra", "-key", c[1], "-"); err != nil || !strings.Contains(stderr, c[2]) {
			t.Errorf("%s: %v\n%s", c[2], err, stderr)
		}
	}
	if _, stderr, err := command(t, strings.NewReader(log), "replay", "-algorithm", "gcra", "-"); err != nil || strings.Contains(stderr, "change that name") {
		t.Errorf("%v\n%s", err, stderr)
	}
	_, _, err := command(t, strings.NewReader("time,ip\n"), "replay", "-")
	if err == nil || !strings.Contains(err.Error(), `"tierlimit replay -h"`) {
		t.Error(err)
	}
	// A log that cannot be read is refused with advice.
	for _, log := range []string{"when,who\n2026-11-22T12:00:00Z,a\n", "2026-11-22T12:00:00Z|a\n", `{"Records":[{"eventTime":"2026-11-22T12:00:00Z"}]}`, "[", `["a"]`, "<xml/>"} {
		_, stderr, err := command(t, strings.NewReader(log), "replay", "-")
		if err == nil || !strings.Contains(err.Error(), "convert other logs to lines of a time, a space and a key") || !strings.Contains(stderr, "left out") {
			t.Errorf("%q: %v\n%s", log, err, stderr)
		}
	}
	if _, _, err := command(t, strings.NewReader(""), "replay", "-"); err == nil || !strings.Contains(err.Error(), "is empty") {
		t.Error(err)
	}
}

// The command says what it took from the log for the key and the cost, if that may be another column: the
// server's name, or the status.
func TestLogsReadDoubtfully(t *testing.T) {
	server := strings.Repeat(`{"time":1795348800,"host":"web1","path":"/a"}`+"\n", fewRequests)
	for _, c := range []struct{ log, key, want string }{
		{server, "host", "all 20 requests have one key, \"web1\""},
		{server, "path", ""},
		{server + `{"time":1795348800,"host":"web2"}` + "\n", "host", ""},
		{"1795348800 a 200\n1795348801 b 404\n", "host", "2 requests cost 604 units, as the log says."},
		{"1795348800 a\n1795348801 b\n", "host", ""},
	} {
		_, stderr, err := command(t, strings.NewReader(c.log), "replay", "-algorithm", "gcra", "-key", c.key, "-")
		if err != nil || !strings.Contains(stderr, c.want) || c.want == "" && stderr != "" {
			t.Errorf("%.60q: %v\n%s", c.log, err, stderr)
		}
	}
}

// If the log does not have the costs, the command says that each request costs 1.
func TestLogsWithoutBytes(t *testing.T) {
	const without = `{"time":1795348800,"host":"h","sent":4000}` + "\n"
	for cost, want := range map[string]string{"bytes": "more than 1 byte\n", "kB": "more than 1 kB\n", "requests": ""} {
		_, stderr, err := command(t, strings.NewReader(without), "replay", "-algorithm", "gcra", "-cost", cost, "-")
		if err != nil || !strings.HasSuffix(stderr, want) || (want == "") != (stderr == "") {
			t.Errorf("%s: %v\n%s", cost, err, stderr)
		}
	}
	const with = without + `{"time":1795348801,"host":"h","bytes":4000}` + "\n"
	if _, stderr, err := command(t, strings.NewReader(with), "replay", "-algorithm", "gcra", "-cost", "bytes", "-"); err != nil || stderr != "" {
		t.Errorf("%v\n%s", err, stderr)
	}
}

// The library's errors contain the command's name already.
func TestMessagesNameTheCommandOnce(t *testing.T) {
	for _, args := range [][]string{{"replay", "-limit", "0/1m"}, {"plan", "-above", "-1"}, {"report", "-bytes", "1"}, {"replay", "-algorithm", "foo"}, {"plan", "-bytes", "1"}} {
		_, _, err := command(t, nil, args...)
		if err == nil {
			t.Fatalf("%q: no error", args)
		}
		if said := message(err); strings.Count(said, "tierlimit:") != 1 || !strings.HasPrefix(said, "tierlimit: ") {
			t.Errorf("%q: %s", args, said)
		}
	}
}
