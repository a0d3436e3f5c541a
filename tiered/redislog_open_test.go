package tiered

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// redisLogVariable is the environment variable that tells a process of TestOpenTakesOverTheLogOfRedis what to do.
const redisLogVariable = "TIERLIMIT_TEST_REDIS_LOG"

// go-redis has one logger per process, so each case runs in a process of its own. The process opens a limiter
// while Redis is lost, and the test checks what it writes to standard error.
func TestOpenTakesOverTheLogOfRedis(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct{ has, lacks []string }{
		// By default, the lines go to the limiter's logger, and nowhere else.
		"nothing": {[]string{`"of":"a limiter","message":"sentinel: `}, []string{"redis: 20", `"of":"the process"`}},
		// A choice that the program has made is kept.
		"keep":      {[]string{"redis: 20"}, []string{"reports a problem"}},
		"chosen":    {[]string{`"of":"the program","message":"sentinel: `}, []string{"redis: 20", `"of":"a limiter","message"`}},
		"set later": {[]string{"a line of the program's: sentinel"}, []string{"redis: 20", `"of":"a limiter","message"`}},
		// After Close, no line goes to the limiter's logger.
		"closed":     {[]string{`"of":"the process","message":"sentinel: `}, []string{"redis: 20", `"of":"a limiter","message"`}},
		"one of two": {[]string{`"of":"another limiter","message":"sentinel: `}, []string{"redis: 20", `"of":"a limiter","message"`, `"of":"the process"`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			process := exec.Command(os.Args[0], "-test.run=^TestRedisLogProcess$", "-test.timeout=60s")
			process.Env = append(os.Environ(), redisLogVariable+"="+name)
			var log bytes.Buffer
			process.Stderr = &log
			if err := process.Run(); err != nil {
				t.Fatalf("%v\n%s", err, &log)
			}
			_, after, ok := strings.Cut(log.String(), "from here on\n")
			if !ok {
				t.Fatalf("the process did nothing:\n%s", &log)
			}
			for _, s := range want.has {
				if !strings.Contains(after, s) {
					t.Errorf("no line with %s in\n%s", s, after)
				}
			}
			for _, s := range want.lacks {
				if strings.Contains(after, s) {
					t.Errorf("a line with %s in\n%s", s, after)
				}
			}
		})
	}
}

// TestRedisLogProcess is the process that TestOpenTakesOverTheLogOfRedis runs.
func TestRedisLogProcess(t *testing.T) {
	name := os.Getenv(redisLogVariable)
	if name == "" {
		return // without the variable, this test has nothing to do
	}
	logging.Enable() // go-redis's default, which redistest.Main changes
	const away = "redis://127.0.0.1:1?master_name=mymaster"
	loggerOf := func(who string) *slog.Logger {
		return slog.New(slog.NewJSONHandler(os.Stderr, nil)).With("of", who)
	}
	open := func(who string, options ...Option) *Limiter {
		l, err := OpenURL(away, append(options, Logger(loggerOf(who)))...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	fromHereOn := func() { fmt.Fprintln(os.Stderr, "from here on") }
	slog.SetDefault(loggerOf("the process"))
	switch name {
	case "nothing":
		fromHereOn()
		open("a limiter")
	case "keep":
		fromHereOn()
		open("a limiter", KeepLogOfRedis())
	case "chosen":
		chosen := newQuietLog(loggerOf("the program"))
		t.Cleanup(func() { chosen.flush(time.Minute) })
		sendLogOfRedis(chosen)
		fromHereOn()
		open("a limiter")
	case "set later":
		_ = open("a limiter").Close()
		redis.SetLogger(programsLogger{})
		fromHereOn()
		open("a limiter")
	case "closed":
		_ = open("a limiter").Close()
		fromHereOn()
		pingAway(t)
		redisLines.rest.flush(time.Minute)
	case "one of two":
		first := open("a limiter")
		open("another limiter")
		_ = first.Close()
		fromHereOn()
		pingAway(t)
	}
}

// pingAway makes a client of the program's own report that its Redis cannot be reached.
func pingAway(t *testing.T) {
	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "mymaster", SentinelAddrs: []string{"127.0.0.1:1"}, MaxRetries: -1, DialerRetries: 1})
	defer client.Close()
	if err := client.Ping(context.Background()).Err(); err == nil {
		t.Fatal("there is a Sentinel at port 1")
	}
}

type programsLogger struct{}

func (programsLogger) Printf(_ context.Context, format string, args ...any) {
	fmt.Fprintf(os.Stderr, "a line of the program's: "+format+"\n", args...)
}
