package tiered

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

func TestOpenURL(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "redis.sock")
	node := redistest.Start(t, "--unixsocket", socket)
	cluster, sentinel := redistest.SharedCluster(t), redistest.StartSentinel(t)
	for name, url := range map[string]string{
		"a node":        "redis://" + node.Addr() + "/2?pool_size=3",
		"a Unix socket": "unix://" + socket + "?db=3",
		"a Cluster":     fmt.Sprintf("redis://%s?addr=%s", cluster.Addrs()[0], cluster.Addrs()[1]),
		"Sentinel":      fmt.Sprintf("redis://%s?master_name=%s", sentinel.Addr(), sentinel.MasterName()),
	} {
		t.Run(name, func(t *testing.T) {
			l, err := OpenURL(url, Prefix(redistest.Prefix()), Deadline(5*time.Second), Logger(slog.New(slog.DiscardHandler)))
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			r := l.MustRule("r", limit.PerHour(2))
			for i, want := range []bool{true, true, false} {
				if d := mustAllow(t, r, "k", 1); d.Allowed != want || d.Degraded() {
					t.Errorf("request %d: %+v", i, d)
				}
			}
		})
	}
}

// Laws 6 and 12: settings that choose among a master and its replicas matter only to reads. Under Sentinel Open leaves
// them out: with ReadOnly go-redis asks a replica, which refuses every decision, and with the others its client
// leaves goroutines and a connection to the Sentinel behind when it is closed.
func TestLaws6And12OpenAsksTheMasterOfSentinel(t *testing.T) {
	t.Parallel()
	sentinel := redistest.StartSentinel(t)
	watcher := redis.NewClient(&redis.Options{Addr: sentinel.Addr()})
	defer watcher.Close()
	connections := func() int {
		list, err := watcher.Do(t.Context(), "CLIENT", "LIST").Text()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(list, "\n")
	}
	before := connections()
	for name, change := range map[string]func(*redis.UniversalOptions){
		"ReadOnly":       func(o *redis.UniversalOptions) { o.ReadOnly = true },
		"RouteByLatency": func(o *redis.UniversalOptions) { o.RouteByLatency = true },
		"RouteRandomly":  func(o *redis.UniversalOptions) { o.RouteRandomly = true },
		"IsClusterMode":  func(o *redis.UniversalOptions) { o.IsClusterMode = true },
	} {
		o := &redis.UniversalOptions{Addrs: []string{sentinel.Addr()}, MasterName: sentinel.MasterName()}
		change(o)
		l, err := Open(o, Prefix(redistest.Prefix()), Deadline(5*time.Second), Logger(slog.New(slog.DiscardHandler)))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if d := mustAllow(t, l.MustRule("r", limit.PerHour(2)), "k", 1); d.Degraded() {
			t.Errorf("%s: %+v", name, d)
		}
		if err := l.Close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		redistest.Eventually(t, "no connection to the Sentinel left, with "+name, func() bool { return connections() <= before })
	}
}

// A name that Sentinel does not know is an outage, since it may learn the name. The log says that the name is the reason:
// go-redis says only that the Sentinels are unreachable, and "redis: nil".
func TestOpenWithANameThatSentinelDoesNotKnow(t *testing.T) {
	t.Parallel()
	var log lockedBuffer
	l, err := OpenURL("redis://"+redistest.StartSentinel(t).Addr()+"?master_name=other", Logger(slog.New(slog.NewTextHandler(&log, nil))))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	redistest.Eventually(t, "the log names the reason", func() bool { return strings.Contains(log.String(), "a Sentinel knows no master of this name") })
}

// Pool sizes that make go-redis panic are errors. Such sizes often come from the environment, with the rest of
// the URL, and in other libraries -1 means "no limit".
func TestOpenURLRefusesSizesOfThePool(t *testing.T) {
	address, tooMany := redistest.Shared(t).Addr(), fmt.Sprint(int64(math.MaxInt32)+1)
	for _, query := range []string{
		"pool_size=-1", "pool_size=" + tooMany, "min_idle_conns=" + tooMany, "max_idle_conns=" + tooMany, "max_active_conns=" + tooMany,
		"pool_size=-1&master_name=m", "pool_size=-1&addr=" + address,
	} {
		l, err := OpenURL("redis://" + address + "?" + query)
		if !errors.Is(err, limit.ErrInvalidOption) || !strings.Contains(err.Error(), "pool_size") {
			t.Errorf("%s: %v", query, err)
		}
		if err == nil {
			_ = l.Close()
		}
	}
}

// With a negative time-out for dialling, go-redis cannot connect to any server, however long the limiter waits.
// URLs often have it, because 0 and -1 turn off the other time-outs.
func TestOpenRefusesNegativeDialTimeouts(t *testing.T) {
	address := redistest.Shared(t).Addr()
	for _, query := range []string{"dial_timeout=0", "dial_timeout=-1", "dial_timeout=-1s&addr=" + address, "dial_timeout=0s&master_name=m"} {
		l, err := OpenURL("redis://"+address+"?"+query, Logger(slog.New(slog.DiscardHandler)))
		if !errors.Is(err, limit.ErrInvalidOption) || !strings.Contains(err.Error(), "dial_timeout") {
			t.Errorf("%s: %v", query, err)
		}
		if err == nil {
			_ = l.Close()
		}
	}
}

// The same goes for clients that are handed in.
func TestNewRefusesNegativeDialTimeouts(t *testing.T) {
	address := redistest.Shared(t).Addr()
	for name, client := range map[string]redis.UniversalClient{
		"one node":  redis.NewClient(&redis.Options{Addr: address, DialTimeout: -1}),
		"a Cluster": redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{address}, DialTimeout: -1}),
		"Sentinel":  redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{address}, DialTimeout: -1}),
	} {
		l, err := New(client, Logger(slog.New(slog.DiscardHandler)))
		if !errors.Is(err, limit.ErrInvalidOption) || !strings.Contains(err.Error(), "DialTimeout") {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			_ = l.Close()
		}
		_ = client.Close()
	}
}

// Redis refuses names with spaces on each new connection, so waiting does not help.
func TestOpenRefusesClientNamesThatRedisRefuses(t *testing.T) {
	l, err := OpenURL("redis://"+redistest.Shared(t).Addr()+"?client_name=my%20service", Logger(slog.New(slog.DiscardHandler)))
	if !errors.Is(err, limit.ErrInvalidOption) || !strings.Contains(err.Error(), "client_name") {
		t.Error(err)
	}
	if err == nil {
		_ = l.Close()
	}
}

func TestOpenURLSaysWhatIsWrong(t *testing.T) {
	for _, url := range []string{"", "127.0.0.1:6379", "redis://u:s3cret@127.0.0.1:port"} {
		_, err := OpenURL(url)
		if !errors.Is(err, limit.ErrInvalidOption) || !strings.Contains(err.Error(), "redis://") || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: %v", url, err)
		}
	}
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	defer func() {
		if err, ok := recover().(error); !ok || !errors.Is(err, limit.ErrInvalidLimit) {
			t.Errorf("MustRule panics with %v", err)
		}
	}()
	l.MustRule("r", limit.PerHour(0))
}
