package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/cmd/tierlimit/internal/page"
	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/rulesfile"
	"github.com/tierlimit/tierlimit/tiered"
)

func newLimiter(t *testing.T, client redis.UniversalClient, options ...tiered.Option) *tiered.Limiter {
	t.Helper()
	options = append(options, tiered.Deadline(10*time.Second), tiered.Logger(slog.New(slog.DiscardHandler)))
	limiter := redistest.Reached(t, client, func() (*tiered.Limiter, error) { return tiered.New(client, options...) })
	t.Cleanup(func() { _ = limiter.Close() })
	return limiter
}

func charge(t *testing.T, rule *tiered.Rule, key string, cost int64) {
	t.Helper()
	if d, err := rule.AllowN(t.Context(), key, cost); err != nil || !d.Allowed || d.Tier != limit.TierRedis {
		t.Fatalf("%d of %q: %+v, %v", cost, key, d, err)
	}
}

// says runs a command, and fails the test unless all of the words are on stdout or stderr.
func says(t *testing.T, args []string, words ...string) string {
	t.Helper()
	stdout, stderr, err := command(t, nil, args...)
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	text := regexp.MustCompile(` +`).ReplaceAllString(stdout+stderr, " ")
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("%q does not say %q:\n%s", args, word, stdout+stderr)
		}
	}
	return stdout
}

// show prints what a service has charged for a key, under every algorithm, and does not walk over keys.
func TestShow(t *testing.T) {
	server := redistest.Start(t)
	client, ctx := server.Client(t), context.Background()
	limiter := newLimiter(t, client)
	const key = "user {17}\x1b[31m"
	flags := []string{"show", "-redis", server.URL()}
	encodings := map[limit.Algorithm]string{
		limit.SlidingLog():                      "a ring of 5-byte time stamps",
		limit.SlidingLogZSet():                  "a sorted set",
		limit.SlidingCounter(16, limit.Strict):  "17 counts of 1 bytes",
		limit.SlidingCounter(4, limit.Estimate): "5 counts of 1 bytes",
		limit.GCRA():                            "a theoretical arrival time",
		limit.FixedWindow():                     "a count, 28 bytes",
	}
	n := 0
	for algorithm, encoding := range encodings {
		n++
		name := fmt.Sprintf("%s.%d", algorithm.Name(), n)
		charge(t, limiter.MustRule(name, limit.PerHour(60), tiered.Use(algorithm)), key, 3)
		stdout := says(t, append(flags, "-limit", "60/1h", name, key),
			"state "+algorithm.Name()+": "+encoding, "used 3 units of 60", "limit 60/1h", `key "user {17}\x1b[31m"`, " 3 ", "using the Redis at "+server.URL())
		if strings.Contains(stdout, "\x1b") {
			t.Errorf("a key's escape sequence is printed as it is: %q", stdout)
		}
	}
	says(t, append(flags, "gcra.none", key), "state none")

	// show also prints leases, and the markers of the fleet's instances.
	leased := limiter.MustRule("leased", limit.PerHour(1000), tiered.Use(limit.SlidingLog()), tiered.Lease(50))
	for range 50 {
		if _, err := leased.Allow(ctx, key); err != nil {
			t.Fatal(err)
		}
	}
	instance := client.ZRange(ctx, "tl:{%fleet}", 0, -1).Val()[0]
	redisKey := "tl:{user %7B17%7D\x1b[31m}:leased"
	if err := client.Set(ctx, redisKey+":charged:"+instance, "7", time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	says(t, append(flags, "leased", key), "on lease ", "counted as used; lease ", "ends in ", "charges of instance \""+instance+"\" after an outage, up to number 7")

	// A value that is not a state is reported as unknown.
	client.Set(ctx, redisKey, "hello", time.Minute)
	says(t, append(flags, "leased", key), "an encoding that this version does not know", "(tag 104)")

	// A rules file provides the rules, and the limits of keys.
	file := filepath.Join(t.TempDir(), "rules.yaml")
	rules := "rules:\n  log:\n    limit: 60/1h\n    algorithm: sliding-log\n    keys:\n      alice: 90/1h\n  other:\n    limit: 5/1m\n"
	if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	loaded, err := rulesfile.Load(limiter, file)
	if err != nil {
		t.Fatal(err)
	}
	log, err := loaded.Rule("log")
	if err != nil {
		t.Fatal(err)
	}
	charge(t, log.For("alice"), "alice", 70)
	says(t, append(flags, "-rules", file, "alice"), `rule "log"`, `rule "other"`, "limit 90/1h", "used 70 units of 90", "limit 5/1m", "state none")

	// Under GCRA a key is full when its burst is used up, whatever the limit.
	smooth := limiter.MustRule("smooth", limit.PerHour(60).WithBurst(2))
	charge(t, smooth, key, 2)
	says(t, append(flags, "-limit", "60/1h,burst=2", "smooth", key), "used 2 units of 2, the burst")
	charge(t, limiter.MustRule("large", limit.PerHour(1_000_000)), key, 100)
	says(t, append(flags, "-limit", "1000000/1h", "large", key), " units of 1000000, or of the burst if the rule has one or chose one: -limit 1000000/1h,burst=UNITS")
	if err := os.WriteFile(file, []byte("rules:\n  large:\n    limit: 1000000/1h\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	says(t, append(flags, "-rules", file, key), " units of 100000, the burst")

	if stats := client.Info(ctx, "commandstats").Val(); strings.Contains(stats, "cmdstat_scan:") || strings.Contains(stats, "cmdstat_keys:") {
		t.Errorf("show has walked over the keys:\n%s", stats)
	}
}

// show prints which processes hold units of a concurrency limit, and until when. It also prints the
// open holds.
func TestShowWhatIsHeld(t *testing.T) {
	server := redistest.Start(t)
	client, ctx := server.Client(t), context.Background()
	limiter, other := newLimiter(t, client), newLimiter(t, client)
	flags := []string{"show", "-redis", server.URL()}
	for i, l := range []*tiered.Limiter{limiter, other} {
		jobs := l.MustRule("jobs", limit.Concurrent(10), tiered.SlotTTL(10*time.Minute))
		if slot, d, err := jobs.Acquire(ctx, "acme", int64(3+i)); slot == nil || err != nil {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	for _, args := range [][]string{{"-limit", "10/concurrent", "jobs", "acme"}, {"jobs", "acme"}} {
		stdout := says(t, append(flags, args...), `Redis key "tl:{acme}:jobs:slots"`, "state concurrency: a line for each process, 80 bytes", "used 7 units",
			"units held by process free, if not renewed")
		for _, units := range []string{"3", "4"} {
			if !regexp.MustCompile(`(?m)^  ` + units + ` +[0-9a-f]{16} +in (9m59s|10m)$`).MatchString(stdout) {
				t.Errorf("nobody is said to hold %s units:\n%s", units, stdout)
			}
		}
	}
	says(t, append(flags, "-limit", "10/concurrent", "jobs", "nobody"), "limit 10/concurrent", "state none")
	client.Set(ctx, "tl:{acme}:jobs:slots", "\x0a", time.Minute)
	says(t, append(flags, "jobs", "acme"), "tl:{acme}:jobs:slots", "the value is damaged")
	client.Del(ctx, "tl:{acme}:jobs:slots") // otherwise Close would try until its deadline to give the slots back

	for i, policy := range []tiered.UnsettledPolicy{tiered.Keep, tiered.GiveBack} {
		tokens := limiter.MustRule(fmt.Sprint("tokens", i), limit.PerHour(1000), tiered.Unsettled(policy))
		charge(t, tokens, "acme", 5)
		for n := range int64(14) {
			if hold, d, err := tokens.Hold(ctx, "acme", 20+n, time.Duration(1+n)*time.Hour); hold == nil || err != nil {
				t.Fatalf("%+v, %v", d, err)
			}
		}
	}
	for rule, then := range map[string]string{"tokens0": "counts until it leaves", "tokens1": "is given back"} {
		stdout := says(t, append(flags, rule, "acme"), "used 376 units", "held by hold charged ends if nobody settles it", "41 2 others earlier")
		if !regexp.MustCompile(`(?m)^  33 +[0-9a-f]{16} +\S+ ago +in (13h59m|14h) +`+then+`$`).MatchString(stdout) || strings.Count(stdout, then) != maxLines {
			t.Errorf("%s does not tell of 12 holds and what becomes of them:\n%s", rule, stdout)
		}
	}
	client.Set(ctx, "tl:{acme}:tokens0:holds", "hello", time.Minute)
	says(t, append(flags, "tokens0", "acme"), "holds the value has an encoding that this version does not know")

	// A hold that was given back may still be settled.
	short := limiter.MustRule("short", limit.PerHour(1000), tiered.Unsettled(tiered.GiveBack))
	if hold, d, err := short.Hold(ctx, "acme", 30, time.Millisecond); hold == nil || err != nil {
		t.Fatalf("%+v, %v", d, err)
	}
	for deadline := time.Now().Add(30 * time.Second); ; {
		if d, err := short.Peek(ctx, "acme", 1); err != nil || time.Now().After(deadline) {
			t.Fatalf("the hold does not end: %+v, %v", d, err)
		} else if d.Remaining == 1000 {
			break
		}
	}
	charge(t, short, "acme", 1)
	says(t, append(flags, "short", "acme"), "used 1 unit", "was given back")
}

// top lists the fullest keys of a rule, and says if it did not see all keys.
func TestTop(t *testing.T) {
	server := redistest.Start(t)
	client, ctx := server.Client(t), context.Background()
	limiter := newLimiter(t, client)
	for _, algorithm := range []limit.Algorithm{limit.SlidingLog(), limit.SlidingLogZSet(), limit.SlidingCounter(16, limit.Strict), limit.GCRA(), limit.FixedWindow()} {
		name := algorithm.Name()
		if algorithm == limit.SlidingLogZSet() {
			name = "zset"
		}
		rule, other := limiter.MustRule(name, limit.PerHour(1000), tiered.Use(algorithm)), limiter.MustRule(name+"-other", limit.PerHour(1000))
		for i := range 12 {
			charge(t, rule, fmt.Sprintf("key{%d}", i), int64(10*(i+1)))
			charge(t, other, fmt.Sprint(i), 500)
		}
		stdout := says(t, []string{"top", "-redis", server.URL(), "-n", "3", "-limit", "1000/1h", name},
			fmt.Sprintf("rule %q: 12 keys", name), "120 1000 \"key{11}\"", "110 1000 \"key{10}\"", "100 1000 \"key{9}\"", "using the Redis at")
		if strings.Contains(stdout, "key{8}") || strings.Contains(stdout, "stopped") || strings.Index(stdout, "key{11}") > strings.Index(stdout, "key{9}") {
			t.Errorf("three keys, the fullest first:\n%s", stdout)
		}
	}
	for i := range 600 {
		client.Set(ctx, fmt.Sprint("other program ", i), "x", 0)
	}
	client.Set(ctx, "tl:{broken}:gcra", "hello", time.Minute)
	says(t, []string{"top", "-redis", server.URL(), "gcra"}, "rule \"gcra\": 13 keys\n", "1 of them could not be read", `"tl:{broken}:gcra"`)
	says(t, []string{"top", "-redis", server.URL(), "-max-keys", "100", "gcra"}, "stopped after about 100 keys (-max-keys), so there may be more")
	says(t, []string{"top", "-redis", server.URL(), "-time", "1ns", "gcra"}, "stopped after 1ns (-time), so there may be more")
	long := strings.Repeat("long", 30)
	charge(t, limiter.MustRule("long", limit.PerHour(10)), long, 1)
	says(t, []string{"top", "-redis", server.URL(), "long"}, "a long key, with hash \"%#")
}

// Units of a key with a longer window of its own are listed although the rule's window is over. Of a long key, top does
// not know whether the file has a limit for it.
func TestTopOfKeysWithLimitsOfTheirOwn(t *testing.T) {
	server := redistest.Start(t)
	limiter := newLimiter(t, server.Client(t))
	for _, a := range []limit.Algorithm{limit.SlidingLog(), limit.FixedWindow()} {
		path := filepath.Join(t.TempDir(), "rules.yaml")
		long := strings.Repeat("long", 30)
		text := fmt.Sprintf("rules: {%s: {limit: 60/1ms, algorithm: %s, keys: {vip: 500/8784h, %s: 500/8784h}}}", a.Name(), a.Name(), long)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		rule, err := limiter.MustRule(a.Name(), limit.Per(60, time.Millisecond), tiered.Use(a)).WithLimit(limit.Per(500, limit.MaxWindow))
		if err != nil {
			t.Fatal(err)
		}
		charge(t, rule, "vip", 7)
		charge(t, rule, long, 8)
		says(t, []string{"top", "-redis", server.URL(), "-rules", path, a.Name()}, "2 keys\n", `7 500 "vip"`, "8 - a long key")
		says(t, []string{"top", "-redis", server.URL(), "-limit", "60/1ms", a.Name()}, "2 keys\n", `7 60 "vip"`, "8 60 a long key")
	}
}

// For a concurrency limit, top lists the held units, even if the rule once had a rate.
func TestTopOfWhatIsInFlight(t *testing.T) {
	server := redistest.Start(t)
	limiter := newLimiter(t, server.Client(t))
	rule := limiter.MustRule("jobs", limit.Concurrent(100), tiered.SlotTTL(10*time.Minute))
	charge(t, limiter.MustRule("jobs2", limit.PerHour(100)), "another rule's", 90)
	for i := range 5 {
		slot, d, err := rule.Acquire(t.Context(), fmt.Sprint("tenant ", i), int64(10*(i+1)))
		if err != nil || slot == nil {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	stdout := says(t, []string{"top", "-redis", server.URL(), "-n", "2", "-limit", "100/concurrent", "jobs"},
		"rule \"jobs\": 5 keys\n", "50 100 \"tenant 4\"", "40 100 \"tenant 3\"", "ago when released")
	if strings.Contains(stdout, "another rule's") || strings.Contains(stdout, "tenant 2") {
		t.Errorf("the two fullest of the rule:\n%s", stdout)
	}
}

// An error about a surplus argument names the kind of argument, and the help does not promise a Redis.
func TestLookingCommandsSayWhatTheyTake(t *testing.T) {
	for _, args := range [][]string{{"top", "a", "b"}, {"demo", "a", "b"}, {"replay", "a", "b"}} {
		want := "at most one " + map[string]string{"top": "RULE", "demo": "FILE", "replay": "FILE"}[args[0]]
		if _, _, err := command(t, nil, args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
	if _, _, err := command(t, nil, "report", "access.log", "access.log.1"); err == nil || !strings.Contains(err.Error(), `"zcat -f FILE... | tierlimit report -"`) {
		t.Error(err)
	}
	for name, embedded := range map[string]bool{"show": false, "top": false, "plan": true, "replay": true} {
		stdout, _, _ := command(t, nil, name, "-h")
		if !strings.Contains(stdout, "$REDIS_URL") || strings.Contains(stdout, "an embedded one") != embedded {
			t.Errorf("%s -h:\n%s", name, stdout)
		}
	}
}

func TestDurationsAreWrittenAsWindowsAre(t *testing.T) {
	for d, want := range map[time.Duration]string{
		time.Minute: "1m", 14 * time.Hour: "14h", 90 * time.Minute: "1h30m", 125 * time.Second: "2m5s",
		10*time.Hour + 29*time.Second: "10h", 8810 * time.Millisecond: "8.81s", 37 * time.Microsecond: "37µs", 0: "0s",
	} {
		if got := duration(d.Microseconds()); got != want {
			t.Errorf("%v is written %q, want %q", d, got, want)
		}
	}
	if got := duration(math.MaxInt64); got != "2562047h47m" {
		t.Errorf("longer than a time.Duration holds, it is written %q", got)
	}
}

// On a Cluster, show and top find keys on whichever master they are.
func TestShowAndTopOnACluster(t *testing.T) {
	cluster := redistest.StartCluster(t, 2)
	limiter := newLimiter(t, cluster.Client(t), tiered.HashTags(64))
	rule := limiter.MustRule("r", limit.PerHour(100))
	for i := range 8 {
		charge(t, rule, fmt.Sprint("key ", i), int64(i+1))
	}
	url := "redis://" + cluster.Addrs()[0] + "?addr=" + cluster.Addrs()[1]
	says(t, []string{"top", "-redis", url, "r"}, "8 keys", `8 - "key 7"`, `1 - "key 0"`)
	for i := range 8 {
		says(t, []string{"show", "-redis", url, "-hash-tags", "64", "r", fmt.Sprint("key ", i)}, "used "+page.Count(i+1, "unit"))
	}
	const part = "This is one node of a Cluster"
	if stdout := says(t, []string{"top", "-redis", "redis://" + cluster.Addrs()[0], "r"}, part, "?addr="); strings.Contains(stdout, "8 keys") {
		t.Errorf("one of the masters has all keys:\n%s", stdout)
	}
	if stdout := says(t, []string{"top", "-redis", url, "r"}); strings.Contains(stdout, part) {
		t.Errorf("all masters are said to be one:\n%s", stdout)
	}
	fails(t, []string{"replay", "-redis", "redis://" + cluster.Addrs()[0], "-algorithm", "gcra"}, "a node of a Cluster", "the URL of a Redis of one node")
	for _, addr := range cluster.Addrs() {
		failsAtOnce(t, []string{"demo", "-addr", "127.0.0.1:0", "-redis", "redis://" + addr}, "a node of a Cluster", "the URL of a Redis of one node")
	}
	moved := 0
	for i := range 8 {
		if _, _, err := command(t, nil, "show", "-redis", "redis://"+cluster.Addrs()[0], "-hash-tags", "64", "r", fmt.Sprint("key ", i)); err != nil && strings.Contains(err.Error(), "?addr=") {
			moved++
		}
	}
	if moved == 0 || moved == 8 {
		t.Errorf("of 8 keys %d are said to be on another master", moved)
	}
}

// A Redis of $REDIS_URL is never used without being named, and its password is never shown.
func TestTheRedisIsSaid(t *testing.T) {
	const address = "127.0.0.1:1" // named before the command connects to it
	t.Setenv("REDIS_URL", "redis://user:s3cret@"+address)
	log := filepath.Join(t.TempDir(), "access.log")
	if err := os.WriteFile(log, []byte(morning(t, 20)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"replay", "-algorithm", "gcra", log}, {"plan"}, {"report", log}, {"demo", "-addr", "127.0.0.1:0", log}, {"show", "r", "k"}, {"top", "-max-keys", "10", "r"}} {
		stdout, stderr, _ := command(t, nil, args...)
		if want := "using the Redis at redis://" + address + "/0 ($REDIS_URL)\n"; !strings.Contains(stderr, want) || strings.Contains(stdout+stderr, "s3cret") {
			t.Errorf("%q says %q, want %q\n%s", args, stderr, want, stdout)
		}
	}
	if _, stderr, _ := command(t, nil, "show", "-redis", "redis://"+address, "r", "k"); strings.Contains(stderr, "$REDIS_URL") {
		t.Errorf("of -redis: %q", stderr)
	}
	t.Setenv("REDIS_URL", "")
	if _, _, err := command(t, nil, "show", "r", "k"); err == nil || !strings.Contains(err.Error(), errNoRedis.Error()) {
		t.Errorf("without a Redis: %v", err)
	}
}

// check prints the place and the cause of every mistake. It fails if there is a mistake.
func TestCheck(t *testing.T) {
	good, bad := filepath.Join(t.TempDir(), "good.yaml"), filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(good, []byte("rules:\n  a:\n    limit: 5/1m\n  b:\n    limit: 5/day@Europe/Berlin\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(bad, []byte("rules:\n  a:\n    limit: 5/1x\n  b:\n    limt: 5/1m\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	says(t, []string{"check", good}, good+": 2 rules, no mistakes")
	stdout, stderr, err := command(t, nil, "check", bad, good)
	var misuse usageError
	if err == nil || errors.As(err, &misuse) || !strings.Contains(err.Error(), "3 mistakes") { // exit status 1, not 2
		t.Errorf("%v", err)
	}
	for _, want := range []string{bad + ":3:12: ", bad + ":4:3: ", bad + ":5:5: unknown field \"limt\""} {
		if !strings.Contains(stderr, want) || strings.Count(stderr, "\n") != 3 {
			t.Errorf("%q is not a line of\n%s", want, stderr)
		}
	}
	if !strings.Contains(stdout, good+": 2 rules") {
		t.Errorf("the good file goes without a word: %s", stdout)
	}
	if _, stderr, err := command(t, nil, "check", filepath.Join(t.TempDir(), "none.yaml")); err == nil || !strings.Contains(stderr, "none.yaml") {
		t.Errorf("no such file: %v, %s", err, stderr)
	}
	if _, _, err := command(t, nil, "check"); !errors.As(err, &misuse) {
		t.Errorf("no file: %v", err)
	}
}

func TestVersion(t *testing.T) {
	var out strings.Builder
	err := printVersion(&out, &debug.BuildInfo{
		GoVersion: "go1.26.8", Main: debug.Module{Version: "v0.3.0"}, Deps: []*debug.Module{{Path: "x"}, {Path: libraryPath, Version: "v0.3.1"}},
		Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "true"}},
	})
	if want := "tierlimit v0.3.0, revision abc with changes\nlibrary v0.3.1\ngo1.26.8\n"; err != nil || out.String() != want {
		t.Errorf("%q, %v; want %q", out.String(), err, want)
	}
	says(t, []string{"version"}, "tierlimit ", "go1.")
}

// A row is printed when its replay is done, before the other replays are.
func TestReplayPrintsEachRowWhenItIsDone(t *testing.T) {
	f, err := parseReplayFlags([]string{"-limit", "200000/1m", "-algorithm", "gcra", "-redis", "", "-"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	f.candidates = append(f.candidates, candidate{name: "sliding-log", algorithm: limit.SlidingLog()}) // refused on the command line
	var out strings.Builder
	err = f.run(t.Context(), strings.NewReader(morning(t, 30)), &out, io.Discard)
	stdout := out.String()
	if err == nil || !strings.Contains(err.Error(), "sliding-log") {
		t.Fatalf("a log of 200,000 units: %v", err)
	}
	if !regexp.MustCompile(`(?m)^ *gcra +30 +0 `).MatchString(stdout) {
		t.Errorf("the row that was done is not there:\n%s", stdout)
	}
}

// The units of a hold that has ended are in Redis until the next request for their key, which finds them free.
func TestShowOfAHoldThatIsDue(t *testing.T) {
	server := redistest.Start(t)
	rule := newLimiter(t, server.Client(t)).MustRule("r", limit.PerMinute(10), tiered.Unsettled(tiered.GiveBack))
	if hold, d, err := rule.Hold(t.Context(), "k", 10, time.Millisecond); err != nil || hold == nil {
		t.Fatalf("%+v, %v", d, err)
	}
	show := func() string {
		return says(t, []string{"show", "-redis", server.URL(), "-limit", "10/1m", "r", "k"})
	}
	redistest.Eventually(t, "the hold has ended", func() bool {
		return strings.Contains(show(), "is given back by the next request") && strings.Contains(show(), "10 units of 10")
	})
	charge(t, rule, "k", 1)
	if text := show(); !strings.Contains(text, "1 unit of 10") || !strings.Contains(text, "was given back") {
		t.Error(text)
	}
}
