package tiered

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// listen serves each connection with answer, until the test ends.
func listen(t *testing.T, answer func(net.Conn)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				answer(conn)
			}()
		}
	}()
	return l.Addr().String()
}

// New reports, at once and each with its own text, the errors that waiting would not fix.
func TestNewSaysWhatIsWrongWithRedis(t *testing.T) {
	secured := redistest.Start(t)
	if err := secured.Client(t).ConfigSet(context.Background(), "requirepass", "right").Err(); err != nil {
		t.Fatal(err)
	}
	insists := func(o *redis.Options) {
		o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeEnabled}
	}
	password := func(p string) func(*redis.Options) { return func(o *redis.Options) { o.Password = p } }
	web := listen(t, func(c net.Conn) {
		if _, err := bufio.NewReader(c).ReadString('\n'); err == nil {
			fmt.Fprint(c, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
		}
	})
	protected := listen(t, func(c net.Conn) {
		fmt.Fprint(c, "-DENIED Redis is running in protected mode because protected mode is enabled\r\n")
	})
	for name, tc := range map[string]struct {
		client redis.UniversalClient
		want   error
	}{
		"wrong password":               {secured.Client(t, password("wrong")), limit.ErrAuth},
		"no password":                  {secured.Client(t), limit.ErrAuth},
		"right password":               {secured.Client(t, password("right")), nil},
		"no such database":             {secured.Client(t, password("right"), func(o *redis.Options) { o.DB = 99 }), limit.ErrInvalidOption},
		"no maintenance notifications": {secured.Client(t, password("right"), insists), limit.ErrInvalidOption},
		"no Cluster":                   {redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{redistest.Shared(t).Addr()}}), limit.ErrInvalidOption},
		"protected mode":               {redis.NewClient(&redis.Options{Addr: protected, DialerRetries: 1}), limit.ErrAuth},
		"a web server":                 {redis.NewClient(&redis.Options{Addr: web, DialerRetries: 1}), limit.ErrNotRedis},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.want == nil {
				newLimiterOn(t, tc.client, "start")
			} else if err := refusal(t, tc.client, Prefix("start"), Logger(slog.New(slog.DiscardHandler))); !errors.Is(err, tc.want) {
				t.Fatalf("error %v, want %v", err, tc.want)
			} else {
				t.Log(err)
			}
		})
	}
}

// A server that accepts connections and never answers does not delay New, whatever the client's
// time-outs.
func TestNewDoesNotWaitForASilentServer(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	silent := listen(t, func(net.Conn) { <-release })
	client := redis.NewClient(&redis.Options{Addr: silent, ReadTimeout: time.Minute})
	started := time.Now()
	l, err := New(client, Prefix("silent"), Logger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(started); took > 10*time.Second {
		t.Errorf("New took %v", took)
	}
	if !l.Degraded() {
		t.Error("not in outage mode")
	}
	close(release)
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// A server before Redis 6.2 answers all commands but SET with PXAT. It is refused at the start; otherwise it would
// answer heartbeats, and fail every decision.
func TestNewRefusesAnOldServer(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	client.AddHook(before62{})
	err := refusal(t, client, Prefix(redistest.Prefix()), Logger(slog.New(slog.DiscardHandler)))
	if !errors.Is(err, limit.ErrNotRedis) || !strings.Contains(err.Error(), "Redis 6.2 or newer") {
		t.Errorf("error %v", err)
	}
}

// before62 answers commands of scripts as servers before Redis 6.2 do, if the script is sent along. It knows no script
// by its digest, and no functions.
type before62 struct{}

type serverSays string

func (s serverSays) Error() string { return string(s) }
func (serverSays) RedisError()     {}

func (before62) DialHook(next redis.DialHook) redis.DialHook { return next }

func (before62) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (before62) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		var answer serverSays
		switch name := cmd.Name(); {
		case name == "evalsha":
			answer = "NOSCRIPT No matching script. Please use EVAL."
		case name == "fcall" || name == "function":
			answer = serverSays("ERR unknown command `" + name + "`, with args beginning with: ")
		case name == "eval" && strings.Contains(fmt.Sprint(cmd.Args()[1]), "'PXAT'"):
			answer = "ERR Error running script (call to f_6b1bf486): @user_script:217: @user_script: 217: -ERR syntax error "
		default:
			return next(ctx, cmd)
		}
		cmd.SetErr(answer)
		return answer
	}
}

// An address that nobody can connect to is a mistake that waiting does not solve, unlike a name that no resolver knows.
func TestNewRefusesAnAddressWithoutAPort(t *testing.T) {
	for _, addr := range []string{"localhost", "redis://localhost:6379", "localhost:70000", "::1:6379"} {
		l, err := Open(&redis.UniversalOptions{Addrs: []string{addr}}, Logger(slog.New(slog.DiscardHandler)))
		if err == nil {
			err = l.Close()
			t.Errorf("%s: no error (Close: %v)", addr, err)
		} else if !errors.Is(err, limit.ErrInvalidOption) || !strings.Contains(err.Error(), "127.0.0.1:6379") {
			t.Errorf("%s: %v", addr, err)
		}
	}
}
