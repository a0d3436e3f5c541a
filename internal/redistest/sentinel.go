package redistest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// masterName is the sentinel's name for the master that it watches.
const masterName = "tested"

// Sentinel is one master with one replica, watched by one sentinel. The sentinel makes the replica the master when
// the master has not answered for a second.
type Sentinel struct {
	master, replica, watcher *Server
}

// StartSentinel starts the three servers, and returns when the sentinel can fail over.
func StartSentinel(tb testing.TB) *Sentinel {
	tb.Helper()
	s := &Sentinel{}
	s.master = Start(tb, promptReplication()...)
	s.replica = Start(tb, append(promptReplication(), "--replicaof", "127.0.0.1", strconv.Itoa(s.master.port))...)
	s.watcher = s.startWatcher(tb)
	if err := s.await(tb); err != nil {
		tb.Fatal(err)
	}
	return s
}

func (s *Sentinel) startWatcher(tb testing.TB) *Server {
	tb.Helper()
	// A sentinel needs a file, in which it keeps what it learns.
	config := filepath.Join(tb.TempDir(), "sentinel.conf")
	text := fmt.Sprintf(`sentinel monitor %[1]s 127.0.0.1 %[2]d 1
sentinel down-after-milliseconds %[1]s 1000
sentinel failover-timeout %[1]s 5000
`, masterName, s.master.port)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		tb.Fatalf("redistest: no configuration for the sentinel: %v", err)
	}
	return start(tb, func(port int) []string {
		return []string{config, "--sentinel", "--port", strconv.Itoa(port), "--bind", "127.0.0.1"}
	})
}

// await waits until the replica has its copy and the sentinel knows that.
func (s *Sentinel) await(tb testing.TB) error {
	client := redis.NewSentinelClient(&redis.Options{
		Addr:                     s.Addr(),
		DisableIdentity:          true,
		MaintNotificationsConfig: noMaintNotifications(),
	})
	defer func() { _ = client.Close() }()
	err := poll(30*time.Second, func() error {
		replicas, err := client.Replicas(context.Background(), masterName).Result()
		if err != nil {
			return err
		}
		if len(replicas) != 1 || replicas[0]["flags"] != "slave" || replicas[0]["master-link-status"] != "ok" {
			return fmt.Errorf("the sentinel knows of these replicas: %v", replicas)
		}
		return followed(tb, s.master)
	})
	if err != nil {
		return fmt.Errorf("redistest: the sentinel at %s is not able to fail over: %w", s.watcher.Addr(), err)
	}
	return nil
}

// Master returns the server that was the master at the start.
func (s *Sentinel) Master() *Server { return s.master }

// Replica returns the server that was the replica at the start.
func (s *Sentinel) Replica() *Server { return s.replica }

// Addr returns "host:port" of the sentinel.
func (s *Sentinel) Addr() string { return s.watcher.Addr() }

// MasterName returns the sentinel's name for the master.
func (s *Sentinel) MasterName() string { return masterName }

// Client returns a client of whichever server is the master, which is closed when the test ends. Like the client of
// a single server it sends each command once and obeys contexts. change may adjust its options.
func (s *Sentinel) Client(tb testing.TB, change ...func(*redis.FailoverOptions)) *redis.Client {
	tb.Helper()
	options := &redis.FailoverOptions{
		MasterName:            masterName,
		SentinelAddrs:         []string{s.Addr()},
		ContextTimeoutEnabled: true,
		MaxRetries:            -1,
		DialerRetries:         1,
		DialTimeout:           dialTimeout,
		DisableIdentity:       true,
	}
	for _, f := range change {
		f(options)
	}
	client := redis.NewFailoverClient(options)
	tb.Cleanup(func() { _ = client.Close() })
	return client
}
