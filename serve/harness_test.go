package serve

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	goredis "github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

func dial(t testing.TB, address string) ratelimitv3.RateLimitServiceClient {
	t.Helper()
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return ratelimitv3.NewRateLimitServiceClient(connection)
}

// startOn starts this service on a Redis, with a long deadline and on free ports.
func startOn(t testing.TB, redis, configDir string, settings ...string) *Server {
	t.Helper()
	environ := append([]string{
		"RUNTIME_ROOT=" + configDir, "REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + redis, "TIERLIMIT_DEADLINE=5s",
		"HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1", "PROMETHEUS_ADDR=127.0.0.1:0",
		"PORT=0", "GRPC_PORT=0", "DEBUG_PORT=0", "USE_STATSD=false",
	}, settings...)
	s, _, err := FromEnvironment(environ)
	if err != nil {
		t.Fatal(err)
	}
	s.LookEvery = 10 * time.Millisecond
	client := goredis.NewClient(&goredis.Options{Addr: redis, MaxRetries: -1, DialerRetries: 1})
	defer client.Close()
	server := redistest.Reached(t, client, func() (limiterOf, error) {
		server, err := Start(t.Context(), s, slog.New(slog.DiscardHandler))
		return limiterOf{server}, err
	}).Server
	t.Cleanup(server.Close)
	return server
}

// limiterOf is a service in the form of its limiter.
type limiterOf struct{ *Server }

func (l limiterOf) Degraded() bool { return l.limiters.All.Degraded() }
func (l limiterOf) Close() error   { l.Server.Close(); return nil }

func (s *Server) client(t testing.TB) ratelimitv3.RateLimitServiceClient {
	return dial(t, s.Addr("grpc").String())
}

// configDir makes a directory of configuration files.
func configDir(t testing.TB, files ...string) string {
	t.Helper()
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "config"), 0o700); err != nil {
		t.Fatal(err)
	}
	for i, text := range files {
		if err := os.WriteFile(filepath.Join(root, "config", fmt.Sprintf("f%d.yaml", i)), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

type answer struct {
	response *ratelimitv3.RateLimitResponse
	err      error
}

func ask(t *testing.T, client ratelimitv3.RateLimitServiceClient, request *ratelimitv3.RateLimitRequest) answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	response, err := client.ShouldRateLimit(ctx, request, grpc.WaitForReady(true))
	return answer{response, err}
}

// protoMessage returns a message in gRPC's framing.
func protoMessage(m proto.Message) ([]byte, error) {
	text, err := proto.Marshal(m)
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(text))), text...), err
}
