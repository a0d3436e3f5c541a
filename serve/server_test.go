package serve

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	goredis "github.com/redis/go-redis/v9"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/remote"
	"github.com/tierlimit/tierlimit/serve/internal/service"
	"github.com/tierlimit/tierlimit/serve/internal/transport"
)

// The HTTP servers answer requests, health checks, operators' pages and metrics.
func TestHTTP(t *testing.T) {
	server := start(t, shop)
	post := func(body string) (int, string) {
		t.Helper()
		response, err := http.Post("http://"+server.Addr("http").String()+"/json", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, _ := io.ReadAll(response.Body)
		return response.StatusCode, strings.ReplaceAll(string(text), " ", "")
	}
	const one = `{"domain":"shop","descriptors":[{"entries":[{"key":"base","value":"x"}]}]}`
	if code, text := post(one); code != http.StatusOK || !strings.Contains(text, `"overallCode":"OK"`) {
		t.Errorf("%d %s", code, text)
	}
	if code, text := post(one); code != http.StatusTooManyRequests || !strings.Contains(text, `"code":"OVER_LIMIT"`) {
		t.Errorf("%d %s", code, text)
	}
	for body, want := range map[string]int{
		``:                              http.StatusBadRequest,
		`{`:                             http.StatusBadRequest,
		`{"domain":"shop"}`:             http.StatusBadRequest,
		`{"domain":"shop","unknown":1}`: http.StatusBadRequest,
		`{"domain":"` + strings.Repeat("x", longestJSON) + `"}`: http.StatusRequestEntityTooLarge,
	} {
		if code, _ := post(body); code != want {
			t.Errorf("%.40s: %d, want %d", body, code, want)
		}
	}
	if code, text := get(t, server, "http", "/healthcheck"); code != http.StatusOK || text != "OK" {
		t.Errorf("%d %q", code, text)
	}
	for path, want := range map[string]string{
		"/rlconfig":     "shop.user: unit=YEAR requests_per_unit=5, shadow_mode: false, quota_mode: false\n",
		"/stats":        "ratelimit.service.config_load_success: 1\n",
		"/":             "/rlconfig: the configuration in force\n",
		"/debug/pprof/": "goroutine",
		"/any/other":    "/rlconfig: ", // as in envoyproxy/ratelimit
		"/live/":        "<html",
	} {
		if code, text := get(t, server, "debug", path); code != http.StatusOK || !strings.Contains(text, want) {
			t.Errorf("%s: %d %.300s", path, code, text)
		}
	}
	ask(t, server.client(t), asking("shop user=a"))
	_, metrics := get(t, server, "metrics", "/metrics")
	for _, want := range []string{
		`ratelimit_service_rate_limit_total_hits{domain="shop",key1="base",key2=""} 2`,
		`ratelimit_service_rate_limit_over_limit{domain="shop",key1="base",key2=""} 1`,
		`ratelimit_service_should_rate_limit_error{err_type="service_error"} 1`,
		`ratelimit_service_total_requests{grpc_method="ShouldRateLimit"} 1`, // gRPC calls only, as in the original
		`ratelimit_service_response_time_seconds_count{grpc_method="ShouldRateLimit"} 1`,
		`ratelimit_service_config_load_success 1`,
		`tierlimit_serve_degraded_total 0`,
		`tierlimit_fleet_size 1`,
	} {
		if !strings.Contains(metrics, want+"\n") {
			t.Errorf("no %s in the metrics", want)
		}
	}
}

// Close takes no longer than one request may take, even if several requests do not end: here, one over gRPC and one
// for an operator's page. It ends both at the same time.
func TestCloseIsBounded(t *testing.T) {
	t.Parallel()
	server := start(t, shop)
	profiling, err := net.Dial("tcp", server.Addr("debug").String())
	must(t, err)
	defer profiling.Close()
	_, err = io.WriteString(profiling, "GET /debug/pprof/heap?seconds=600 HTTP/1.1\r\nHost: h\r\n\r\n")
	must(t, err)
	connection, err := grpc.NewClient(server.Addr("grpc").String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	defer connection.Close()
	call := unfinished(t, connection)
	ends := make(chan time.Time, 2)
	go func() {
		_ = call.RecvMsg(&ratelimitv3.RateLimitResponse{})
		ends <- time.Now()
	}()
	go func() {
		_, _ = io.Copy(io.Discard, profiling)
		ends <- time.Now()
	}()
	began := time.Now()
	server.Close()
	if took := time.Since(began); took > endWithin*3/2 { // waiting for one after the other takes twice as long
		t.Errorf("it took %v", took)
	}
	if apart := (<-ends).Sub(<-ends).Abs(); apart >= time.Second {
		t.Errorf("the requests ended %v apart", apart)
	}
}

// unfinished begins a call whose request is never sent, so the server cannot answer it.
func unfinished(t *testing.T, connection *grpc.ClientConn) grpc.ClientStream {
	t.Helper()
	call, err := connection.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true}, ratelimitv3.RateLimitService_ShouldRateLimit_FullMethodName)
	must(t, err)
	// The calls of a connection arrive in order, so the server has received that one when it answers this one.
	_, err = healthv1.NewHealthClient(connection).Check(t.Context(), &healthv1.HealthCheckRequest{})
	must(t, err)
	return call
}

// Clients that watch the health over gRPC learn that the service ends, and do not delay the end.
func TestWatchesOfHealthDoNotDelayTheEnd(t *testing.T) {
	t.Parallel()
	server := start(t, shop)
	connection, err := grpc.NewClient(server.Addr("grpc").String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	defer connection.Close()
	watch := func(name string) healthv1.Health_WatchClient {
		watching, err := healthv1.NewHealthClient(connection).Watch(t.Context(), &healthv1.HealthCheckRequest{Service: name})
		must(t, err)
		_, err = watching.Recv()
		must(t, err)
		return watching
	}
	service, whole := watch(healthName), watch("")
	began := time.Now()
	server.Close()
	if took := time.Since(began); took > endWithin/2 {
		t.Errorf("it took %v", took)
	}
	if health, err := service.Recv(); err != nil || health.GetStatus() != healthv1.HealthCheckResponse_NOT_SERVING {
		t.Error(health, err)
	}
	for _, watching := range []healthv1.Health_WatchClient{service, whole} {
		if health, err := watching.Recv(); status.Code(err) != codes.Unavailable {
			t.Error(health, err)
		}
	}
}

// The memory used to read many limits is returned to the system once they are in force.
func TestMemoryOfReadingIsGivenBack(t *testing.T) {
	forced := func() uint32 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.NumForcedGC
	}
	before := forced()
	start(t, shop)
	if n := forced() - before; n != 0 {
		t.Errorf("with few limits, memory was given back %d times", n)
	}
	text := []byte("domain: d\ndescriptors:\n")
	for i := range manyLimits {
		text = fmt.Appendf(text, "- {key: k, value: v%d, rate_limit: {unit: year, requests_per_unit: 5}}\n", i)
	}
	before = forced()
	start(t, string(text))
	redistest.Eventually(t, "memory is given back", func() bool { return forced() > before })
}

// Changed files are read again, through the links that Kubernetes makes. A configuration with a mistake changes
// nothing.
func TestReload(t *testing.T) {
	root := t.TempDir()
	volume := filepath.Join(root, "config")
	must(t, os.Mkdir(volume, 0o700))
	version := 0
	publish := func(text string) { // as the kubelet does it
		version++
		dir := fmt.Sprintf("..v%d", version)
		must(t, os.Mkdir(filepath.Join(volume, dir), 0o700))
		must(t, os.WriteFile(filepath.Join(volume, dir, "limits.yaml"), []byte(text), 0o600))
		must(t, os.Symlink(dir, filepath.Join(volume, "..new")))
		must(t, os.Rename(filepath.Join(volume, "..new"), filepath.Join(volume, "..data")))
		if version == 1 {
			must(t, os.Symlink("..data/limits.yaml", filepath.Join(volume, "limits.yaml")))
		}
	}
	of := func(n int) string {
		return fmt.Sprintf("domain: d\ndescriptors: [{key: k, rate_limit: {unit: year, requests_per_unit: %d}}]", n)
	}
	publish(of(5))
	server := startOn(t, redistest.Shared(t).Addr(), root, "CACHE_KEY_PREFIX="+redistest.Prefix(), "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED=true")
	client := server.client(t)
	expect(t, client, asking("d k=v"), "OK: OK 4")
	publish(of(10))
	redistest.Eventually(t, "the new file is in force", func() bool { return server.stats.ConfigLoadSuccess.Load() == 2 })
	expect(t, client, asking("d k=v"), "OK: OK 8") // counts continue
	publish("domain: d\ndescriptors: [{key: k, rate_limit: {unit: eon}}]")
	redistest.Eventually(t, "the mistake is found", func() bool { return server.stats.ConfigLoadError.Load() == 1 })
	expect(t, client, asking("d k=v"), "OK: OK 7")
	// A mistake that only making the rules reveals also changes nothing: a configuration is loaded whole or not at
	// all.
	publish(of(3) + "\n---\n")
	redistest.Eventually(t, "the next is in force", func() bool { return server.stats.ConfigLoadSuccess.Load() == 3 })
	publish("domain: d\ndescriptors: [{key: k, rate_limit: {unit: year, requests_per_unit: 99}}, {key: l, rate_limit: {unit: year, requests_per_unit: 1000000, need: {above: 0, bytes: 10}}}]")
	redistest.Eventually(t, "the mistake is found", func() bool { return server.stats.ConfigLoadError.Load() == 2 })
	expect(t, client, asking("d k=v"), "OVER: OVER 0")
	must(t, os.Rename(volume, filepath.Join(root, "gone"))) // atomically: an empty directory would have no limits
	redistest.Eventually(t, "the files are missed", func() bool { return server.stats.ConfigLoadError.Load() == 3 })
	expect(t, client, asking("d k=v"), "OVER: OVER 0")
	if code, _ := get(t, server, "http", "/healthcheck"); code != http.StatusOK {
		t.Errorf("health %d", code)
	}
}

// Files that keep changing are still put in force, within a few looks.
func TestFilesThatChangeAllTheTime(t *testing.T) {
	root := configDir(t, shop)
	s, _, err := FromEnvironment([]string{"RUNTIME_ROOT=" + root, "HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1", "PORT=0", "GRPC_PORT=0", "DEBUG_PORT=0", "USE_PROMETHEUS=false", "USE_STATSD=false"})
	must(t, err)
	s.LookEvery = time.Hour // the test calls again itself
	server, err := Start(t.Context(), s, slog.New(slog.DiscardHandler))
	must(t, err)
	defer server.Close()
	w := newWatch(server)
	w.begin()
	for look := 1; look <= 2*maxMoving; look++ {
		must(t, os.WriteFile(filepath.Join(root, "config", "f0.yaml"), fmt.Appendf(nil, "domain: d\ndescriptors: [{key: k, rate_limit: {unit: year, requests_per_unit: %d}}]", look), 0o600))
		w.again()
		inForce := server.service.Config().Limits()[0].RequestsPerUnit()
		if want := int64(look); look >= maxMoving && inForce != want {
			t.Errorf("look %d: %d is in force", look, inForce)
		}
	}
}

// A file that is removed while the directory is read is left out.
func TestFilesThatGo(t *testing.T) {
	dir := t.TempDir()
	r := reading{root: dir}
	if err := r.readEntry(filepath.Join(dir, "gone"), 0); err != nil || len(r.files) > 0 {
		t.Error(r.files, err)
	}
}

// Files beside the directory whose names begin with its name and a dot count too, as in envoyproxy/ratelimit, unless
// RUNTIME_WATCH_ROOT is false.
func TestFilesBesideTheDirectory(t *testing.T) {
	root := t.TempDir()
	write := func(name, domain string) {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(root, "sub", name)), 0o700))
		must(t, os.WriteFile(filepath.Join(root, "sub", name), []byte("domain: "+domain+"\ndescriptors: [{key: k, rate_limit: {unit: year, requests_per_unit: 1}}]"), 0o600))
	}
	read := func(environ ...string) (string, error) {
		s, warnings, err := FromEnvironment(append(environ, "RUNTIME_ROOT="+root, "REDIS_URL=redis:6379"))
		must(t, err)
		if len(warnings) > 0 {
			t.Error(warnings)
		}
		files, err := s.readConfig()
		var names []string
		for _, f := range files {
			names = append(names, f.Name)
		}
		return strings.Join(names, " "), err
	}
	write("other.yaml", "other")
	if names, err := read("RUNTIME_SUBDIRECTORY=sub"); !errors.Is(err, os.ErrNotExist) {
		t.Error(names, err)
	}
	write("config.yaml", "beside")
	write("config.d/x.yaml", "deep")
	for _, c := range []struct{ environ, want string }{
		{"RUNTIME_SUBDIRECTORY=sub", "config.d/x.yaml config.yaml"},
		{"RUNTIME_SUBDIRECTORY=sub RUNTIME_WATCH_ROOT=false", "error"},
		{"RUNTIME_SUBDIRECTORY=sub RUNTIME_APPDIRECTORY=other", "other.yaml"},
		{"RUNTIME_APPDIRECTORY=sub", "config.d/x.yaml config.yaml other.yaml"},
	} {
		if names, err := read(strings.Fields(c.environ)...); names != c.want && (err == nil || c.want != "error") {
			t.Errorf("%s: %q, %v", c.environ, names, err)
		}
	}
	write("config/a.yaml", "inside")
	if names, err := read("RUNTIME_SUBDIRECTORY=sub"); err != nil || names != "a.yaml config.d/x.yaml config.yaml" {
		t.Error(names, err)
	}
	must(t, os.Symlink("nowhere", filepath.Join(root, "sub", "config", "b.yaml")))
	if names, err := read("RUNTIME_SUBDIRECTORY=sub"); err == nil {
		t.Error(names)
	}
}

// Links to directories are followed, as in a ConfigMap with paths, but no directory is read twice: its domains would
// be duplicates, and a link to a directory above would never end.
func TestLinkedDirectories(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "config")
	for _, name := range []string{"config/releases/v1/a.yaml", "config/..data/sub/b.yaml", "config/.git/c.yaml", "elsewhere/d.yaml"} {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o700))
		must(t, os.WriteFile(filepath.Join(root, name), nil, 0o600))
	}
	for link, target := range map[string]string{
		"current": "releases/v1", "again": ".", "sub": "..data/sub", "hidden": ".git", "linked": "../elsewhere",
		"absolute": filepath.Join(dir, "releases/v1"),
	} {
		must(t, os.Symlink(target, filepath.Join(dir, link)))
	}
	t.Chdir(root)
	for ignoreDotFiles, want := range map[bool]string{
		false: ".git/c.yaml linked/d.yaml releases/v1/a.yaml sub/b.yaml",
		true:  "hidden/c.yaml linked/d.yaml releases/v1/a.yaml sub/b.yaml",
	} {
		for _, dir := range []string{dir, "config"} {
			files, err := readDir(dir, ignoreDotFiles)
			names := ""
			for _, f := range files {
				names += " " + f.Name
			}
			if err != nil || names != " "+want {
				t.Errorf("%s: %q, want %q (%v)", dir, names, want, err)
			}
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// HTTP and gRPC report the same health. With HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED, the service is healthy only
// once it has a configuration.
func TestHealth(t *testing.T) {
	root := t.TempDir()
	server := startOn(t, redistest.Shared(t).Addr(), root, "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED=true")
	connection, err := grpc.NewClient(server.Addr("grpc").String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	defer connection.Close()
	overGRPC := func() bool {
		t.Helper()
		response, err := healthv1.NewHealthClient(connection).Check(t.Context(), &healthv1.HealthCheckRequest{Service: "ratelimit"})
		must(t, err)
		return response.GetStatus() == healthv1.HealthCheckResponse_SERVING
	}
	healthy := func() bool {
		t.Helper()
		before := overGRPC()
		code, _ := get(t, server, "http", "/healthcheck")
		is := overGRPC()
		if before == is && is != (code == http.StatusOK) { // unchanged in between
			t.Errorf("%v over gRPC, and %d over HTTP", is, code)
		}
		return is
	}
	if healthy() {
		t.Error("healthy without a configuration")
	}
	must(t, os.Mkdir(filepath.Join(root, "config"), 0o700))
	must(t, os.WriteFile(filepath.Join(root, "config", "f.yaml"), []byte(shop), 0o600))
	redistest.Eventually(t, "healthy", healthy)
}

// A server that ends lets calls in flight end, so every decision reaches its caller.
func TestGracefulEnd(t *testing.T) {
	server := start(t, "domain: d\ndescriptors: [{key: k, rate_limit: {unit: year, requests_per_unit: 1000000}}]")
	client := server.client(t)
	var answered, lost atomic.Int64
	var callers sync.WaitGroup
	started := make(chan struct{}, 8)
	for range 8 {
		callers.Go(func() {
			for n := 0; ; n++ {
				_, err := client.ShouldRateLimit(t.Context(), asking("d k=v"))
				switch {
				case err == nil:
					answered.Add(1)
				case status.Code(err) == codes.Unavailable:
					return // the server no longer listens, so it has not seen the call
				default:
					lost.Add(1)
					t.Error(err)
					return
				}
				if n == 20 {
					started <- struct{}{}
				}
			}
		})
	}
	for range 8 {
		<-started
	}
	server.Close()
	callers.Wait()
	if asked := int64(server.stats.TotalRequests.Load()); asked != answered.Load() || lost.Load() > 0 {
		t.Errorf("%d decisions, %d answers", asked, answered.Load())
	}
}

// While calls in flight end, the health check over HTTP answers that the service is not healthy.
func TestHealthAtTheEnd(t *testing.T) {
	t.Parallel()
	server := start(t, shop)
	connection, err := grpc.NewClient(server.Addr("grpc").String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	defer connection.Close()
	watching, err := healthv1.NewHealthClient(connection).Watch(t.Context(), &healthv1.HealthCheckRequest{Service: healthName})
	must(t, err)
	next := func(want healthv1.HealthCheckResponse_ServingStatus) {
		t.Helper()
		if health, err := watching.Recv(); err != nil || health.GetStatus() != want {
			t.Fatal(health, err)
		}
	}
	next(healthv1.HealthCheckResponse_SERVING)
	unfinished(t, connection) // holds up the end until the connection is closed
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		server.Close()
	}()
	next(healthv1.HealthCheckResponse_NOT_SERVING)
	if code, _ := get(t, server, "http", "/healthcheck"); code != http.StatusInternalServerError {
		t.Errorf("health %d", code)
	}
	must(t, connection.Close())
	<-ended
}

// Connections that never complete their handshake do not delay the end, and other clients are still told of it.
func TestEndDuringHandshakes(t *testing.T) {
	t.Parallel()
	server := start(t, shop)
	client := server.client(t)
	expect(t, client, asking("shop many=a"), "OK: OK 99")
	for range 3 {
		silent, err := net.Dial("tcp", server.Addr("grpc").String())
		must(t, err)
		defer silent.Close()
	}
	redistest.Eventually(t, "all are accepted", func() bool {
		server.greeting.mu.Lock()
		defer server.greeting.mu.Unlock()
		return len(server.greeting.open) == 3 // without the client's connection, whose handshake is done
	})
	began := time.Now()
	server.Close()
	if took := time.Since(began); took > endWithin/2 {
		t.Errorf("it took %v", took)
	}
}

// A Unix socket replaces the port, and a stale socket of an ended process does not prevent a start.
func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	must(t, err)
	left.SetUnlinkOnClose(false)
	must(t, left.Close())
	start(t, shop, "GRPC_UDS="+path)
	expect(t, dial(t, "unix:"+path), asking("shop user=a"), "OK: OK 4")
}

// Changed certificates are read again, and only clients with the expected certificate are accepted.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	authority := newAuthority(t)
	authority.issue(t, file("server"), "127.0.0.1", 1)
	authority.issue(t, file("client"), "envoy.test", 2)
	authority.issue(t, file("stranger"), "other.test", 3)
	must(t, os.WriteFile(file("ca"), authority.pem, 0o600))
	server := start(t, shop, "GRPC_SERVER_USE_TLS=true", "GRPC_SERVER_TLS_CERT="+file("server.crt"), "GRPC_SERVER_TLS_KEY="+file("server.key"),
		"GRPC_CLIENT_TLS_CACERT="+file("ca"), "GRPC_CLIENT_TLS_SAN=envoy.test")
	pool := x509.NewCertPool()
	pool.AddCert(authority.certificate)
	as := func(name string) (serial int64, err error) {
		config := &tls.Config{RootCAs: pool, VerifyConnection: func(s tls.ConnectionState) error {
			serial = s.PeerCertificates[0].SerialNumber.Int64()
			return nil
		}}
		if name != "" {
			pair, err := tls.LoadX509KeyPair(file(name+".crt"), file(name+".key"))
			must(t, err)
			config.Certificates = []tls.Certificate{pair}
		}
		connection, err := grpc.NewClient(server.Addr("grpc").String(), grpc.WithTransportCredentials(credentials.NewTLS(config)))
		must(t, err)
		defer connection.Close()
		_, err = ratelimitv3.NewRateLimitServiceClient(connection).ShouldRateLimit(t.Context(), asking("shop user=a"))
		return serial, err
	}
	if serial, err := as("client"); err != nil || serial != 1 {
		t.Errorf("certificate %d, %v", serial, err)
	}
	for _, name := range []string{"", "stranger"} {
		if _, err := as(name); status.Code(err) != codes.Unavailable {
			t.Errorf("%q: %v", name, err)
		}
	}
	must(t, os.WriteFile(file("server.crt"), []byte("half a certif"), 0o600))
	if serial, err := as("client"); err != nil || serial != 1 {
		t.Errorf("certificate %d, %v", serial, err)
	}
	authority.issue(t, file("server"), "127.0.0.1", 4)
	redistest.Eventually(t, "the new certificate is shown", func() bool { serial, err := as("client"); return err == nil && serial == 4 })

	s, _, err := FromEnvironment([]string{"GRPC_SERVER_USE_TLS=true", "GRPC_SERVER_TLS_CERT=/none", "GRPC_SERVER_TLS_KEY=/none", "GRPC_HOST=127.0.0.1"})
	must(t, err)
	if _, err := Start(t.Context(), s, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("started without a certificate")
	}
}

// A service starts even if its debug port is taken, as envoyproxy/ratelimit does.
func TestDebugPortTaken(t *testing.T) {
	dir := configDir(t, shop)
	_, port, err := net.SplitHostPort(startOn(t, "", dir).Addr("debug").String())
	must(t, err)
	server := startOn(t, "", dir, "DEBUG_PORT="+port)
	expect(t, server.client(t), asking("shop user=a"), "OK: OK 4")
	if server.Addr("debug") != nil {
		t.Error(server.Addr("debug"))
	}
}

// An error about unreadable certificates is logged once, and again only after a valid certificate was read.
func TestBrokenCertificates(t *testing.T) {
	dir := t.TempDir()
	authority := newAuthority(t)
	authority.issue(t, filepath.Join(dir, "server"), "127.0.0.1", 1)
	var told strings.Builder
	r := &reloaded{files: TLSFiles{Certificate: filepath.Join(dir, "server.crt"), Key: filepath.Join(dir, "server.key")}, log: slog.New(slog.NewTextHandler(&told, nil))}
	now := time.Now()
	look := func() {
		t.Helper()
		now = now.Add(lookAtCertificates)
		config, err := r.current(now)
		if err != nil || len(config.Certificates) != 1 {
			t.Fatal(err)
		}
	}
	look()
	for round := range 2 {
		must(t, os.WriteFile(r.files.Certificate, []byte("half a certif"), 0o600))
		look()
		look()
		if lines := strings.Count(told.String(), "\n"); lines != round+1 || !strings.Contains(told.String(), "GRPC_SERVER_TLS_CERT") {
			t.Errorf("%d lines: %s", lines, told.String())
		}
		authority.issue(t, filepath.Join(dir, "server"), "127.0.0.1", int64(round)+2)
		look()
	}
}

// A certificate that has expired or is not valid yet does not replace a valid one. It does replace an expired one.
func TestExpiredCertificates(t *testing.T) {
	dir := t.TempDir()
	authority := newAuthority(t)
	var told strings.Builder
	r := &reloaded{files: TLSFiles{Certificate: filepath.Join(dir, "server.crt"), Key: filepath.Join(dir, "server.key")}, log: slog.New(slog.NewTextHandler(&told, nil))}
	now := time.Now()
	issue := func(serial int64, from, until time.Duration) {
		t.Helper()
		authority.issueFor(t, filepath.Join(dir, "server"), "127.0.0.1", serial, now.Add(from), now.Add(until))
	}
	expect := func(serial int64, lines int, last string) {
		t.Helper()
		for range 3 {
			now = now.Add(lookAtCertificates)
			config, err := r.current(now)
			must(t, err)
			if got := config.Certificates[0].Leaf.SerialNumber.Int64(); got != serial {
				t.Errorf("certificate %d is in force, want %d", got, serial)
			}
		}
		if got := strings.Count(told.String(), "\n"); got != lines || !strings.Contains(told.String(), last) {
			t.Errorf("%d lines, want %d with %q: %s", got, lines, last, told.String())
		}
	}
	issue(1, -2*time.Hour, -time.Hour)
	expect(1, 1, "GRPC_SERVER_TLS_CERT: the certificate expired at ")
	issue(2, -time.Hour, time.Hour)
	expect(2, 1, "")
	issue(3, -2*time.Hour, -time.Hour)
	expect(2, 2, "the current certificates stay in use")
	issue(4, time.Minute, time.Hour)
	expect(2, 3, "the certificate is not valid before ")
	now = now.Add(2 * time.Minute)
	expect(4, 3, "")
}

// If the name in Redis's certificate is not checked, its issuer still is: it must be the named authority, or
// otherwise one that the system trusts.
func TestRedisCertificateOfAnyName(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	known, unknown := newAuthority(t), newAuthority(t)
	must(t, os.WriteFile(file("ca"), known.pem, 0o600))
	known.issue(t, file("redis"), "redis.test", 1)
	unknown.issue(t, file("stranger"), "redis.test", 2)
	for _, c := range []struct {
		ca, server string
		ok         bool
	}{{"ca", "redis", true}, {"ca", "stranger", false}, {"", "redis", false}} {
		files := RedisTLSFiles{SkipHostname: true}
		if c.ca != "" {
			files.CA = file(c.ca)
		}
		config, err := files.config()
		must(t, err)
		pair, err := tls.LoadX509KeyPair(file(c.server+".crt"), file(c.server+".key"))
		must(t, err)
		listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}})
		must(t, err)
		defer listener.Close()
		go func() {
			if connection, err := listener.Accept(); err == nil {
				_, _ = io.Copy(io.Discard, connection)
				_ = connection.Close()
			}
		}()
		connection, err := tls.Dial("tcp", listener.Addr().String(), config) // the certificate is for another name
		if (err == nil) != c.ok {
			t.Errorf("%+v: %v", c, err)
		}
		if err == nil {
			_ = connection.Close()
		}
	}
}

// A client certificate that is renewed is shown on new connections. What cannot be read replaces nothing.
func TestRenewedClientCertificates(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	authority := newAuthority(t)
	must(t, os.WriteFile(file("ca"), authority.pem, 0o600))
	authority.issue(t, file("redis"), "127.0.0.1", 1)
	pair, err := tls.LoadX509KeyPair(file("redis.crt"), file("redis.key"))
	must(t, err)
	clients := x509.NewCertPool()
	clients.AddCert(authority.certificate)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert,
	})
	must(t, err)
	defer listener.Close()
	shown := make(chan int64, 1)
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			server, serial := connection.(*tls.Conn), int64(0)
			if server.Handshake() == nil {
				serial = server.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
			}
			shown <- serial
			_ = server.Close()
		}
	}()

	authority.issue(t, file("client"), "serve.test", 2)
	config, err := (&RedisTLSFiles{CA: file("ca"), Certificate: file("client.crt"), Key: file("client.key")}).config()
	must(t, err)
	expect := func(serial int64) {
		t.Helper()
		connection, err := tls.Dial("tcp", listener.Addr().String(), config)
		must(t, err)
		defer connection.Close()
		if got := <-shown; got != serial {
			t.Errorf("certificate %d was shown, want %d", got, serial)
		}
	}
	expect(2)
	authority.issue(t, file("client"), "serve.test", 3)
	expect(3)
	must(t, os.WriteFile(file("client.crt"), []byte("half a certif"), 0o600))
	expect(3)
	none, err := config.GetClientCertificate(&tls.CertificateRequestInfo{AcceptableCAs: [][]byte{[]byte("another")}})
	if err != nil || len(none.Certificate) > 0 {
		t.Errorf("to a server that accepts another authority's only: %+v, %v", none, err)
	}
	if _, err := (&RedisTLSFiles{Certificate: file("none"), Key: file("none")}).config(); !errors.Is(err, ErrInvalidSetting) || !strings.Contains(err.Error(), "REDIS_TLS_CLIENT_CERT") {
		t.Errorf("no certificate: %v", err)
	}
}

type authority struct {
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
	pem         []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(99), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(t, err)
	certificate, err := x509.ParseCertificate(der)
	must(t, err)
	return &authority{key, certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// issue writes a certificate and its key into files.
func (a *authority) issue(t *testing.T, path, name string, serial int64) {
	t.Helper()
	a.issueFor(t, path, name, serial, time.Time{}, time.Now().Add(time.Hour))
}

// issueFor writes a certificate that is valid between the two times.
func (a *authority) issueFor(t *testing.T, path, name string, serial int64, from, until time.Time) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), NotBefore: from, NotAfter: until,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if ip := net.ParseIP(name); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{name}
		template.URIs = []*url.URL{{Scheme: "spiffe", Host: name}}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &key.PublicKey, a.key)
	must(t, err)
	der8, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	must(t, os.WriteFile(path+".key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der8}), 0o600))
	must(t, os.WriteFile(path+".crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
}

// Large requests are answered, and requests that are too large are refused.
func TestLargeRequests(t *testing.T) {
	client := start(t, shop).client(t)
	request := asking("shop")
	for i := range 10_000 {
		request.Descriptors = append(request.Descriptors, asking(fmt.Sprintf("shop many=%d", i%5_000)).Descriptors...)
	}
	response := ask(t, client, request).response
	for i, s := range response.GetStatuses() {
		if want := uint32(99 - i/5_000); s.GetLimitRemaining() != want {
			t.Fatalf("descriptor %d: %v, want %d", i, s, want)
		}
	}
	if n := len(response.GetStatuses()); n != 10_000 {
		t.Errorf("%d statuses", n)
	}
	long := asking("shop user=" + strings.Repeat("x", 1<<20))
	expect(t, client, long, "OK: OK 4")
	expect(t, client, long, "OK: OK 3")
	long.Descriptors[0].Entries[0].Value += "y"
	expect(t, client, long, "OK: OK 4")
	expect(t, client, asking("shop user="+strings.Repeat("x", 5<<20)), "ResourceExhausted")
	// The time to answer grows only linearly with the length of a request.
	deep := asking("shop" + " a=b" + strings.Repeat(",a=b", 300_000))
	deep.Descriptors[0].Limit = &commonv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 5, Unit: typev3.RateLimitUnit_YEAR}
	expect(t, client, deep, "OK: OK 4")
}

// Clients may compress their requests, as with envoyproxy/ratelimit. The length after decompression must be within
// the bound.
func TestCompressedRequests(t *testing.T) {
	server := start(t, shop)
	connection, err := grpc.NewClient(server.Addr("grpc").String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.UseCompressor("gzip"))) // the server's import registers gzip here
	must(t, err)
	defer connection.Close()
	client := ratelimitv3.NewRateLimitServiceClient(connection)
	expect(t, client, asking("shop user="+strings.Repeat("x", 1<<20)), "OK: OK 4")
	expect(t, client, asking("shop user="+strings.Repeat("x", 5<<20)), "ResourceExhausted")
}

// Headers that are too large are refused. The service needs none of them.
func TestLargeHeaders(t *testing.T) {
	client := start(t, shop).client(t)
	with := func(bytes int) codes.Code {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "baggage", strings.Repeat("x", bytes))
		_, err := client.ShouldRateLimit(ctx, asking("shop user=a"), grpc.WaitForReady(true))
		return status.Code(err)
	}
	if code := with(transport.LongestHeaders / 2); code != codes.OK {
		t.Errorf("%v", code)
	}
	if code := with(transport.LongestHeaders); code != codes.Internal {
		t.Errorf("%v, want Internal", code)
	}
}

// A request over HTTP that is never complete is answered with status 408.
func TestSlowBody(t *testing.T) {
	front := httptest.NewServer(jsonHandler((&service.Service{}).Decide, 50*time.Millisecond))
	defer front.Close()
	conn, err := net.Dial("tcp", front.Listener.Addr().String())
	must(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "POST /json HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
	must(t, err)
	must(t, conn.SetReadDeadline(time.Now().Add(30*time.Second)))
	text, err := io.ReadAll(conn)
	if err != nil || !strings.HasPrefix(string(text), "HTTP/1.1 408 ") {
		t.Errorf("%v, %q", err, text)
	}
}

// A connection that has reached its maximum age is ended, so that clients spread over all instances. The next call
// opens another connection.
func TestConnectionAge(t *testing.T) {
	server := start(t, shop, "GRPC_MAX_CONNECTION_AGE=100ms", "GRPC_MAX_CONNECTION_AGE_GRACE=30s")
	connection, err := grpc.NewClient(server.Addr("grpc").String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	defer connection.Close()
	client := ratelimitv3.NewRateLimitServiceClient(connection)
	seen := make(map[string]bool) // local addresses of the client
	redistest.Eventually(t, "there have been three connections", func() bool {
		var from peer.Peer
		_, err := client.ShouldRateLimit(t.Context(), asking("shop many=a"), grpc.WaitForReady(true), grpc.Peer(&from))
		must(t, err)
		seen[from.LocalAddr.String()] = true
		return len(seen) == 3
	})
}

// A client that never reads its answers uses a bounded part of the server, and the server still answers other
// clients.
func TestClientThatNeverReads(t *testing.T) {
	server := start(t, shop)
	conn, err := net.Dial("tcp", server.Addr("grpc").String())
	must(t, err)
	defer conn.Close()
	must(t, conn.(*net.TCPConn).SetReadBuffer(4096))
	_, err = io.WriteString(conn, http2.ClientPreface)
	must(t, err)
	framer := http2.NewFramer(conn, conn)
	must(t, framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})) // no answer may be sent
	var block bytes.Buffer
	headers := hpack.NewEncoder(&block)
	body, err := protoMessage(asking("shop many=a"))
	must(t, err)
	refused := false
	for stream := uint32(1); stream < 2*(transport.MaxStreams+500); stream += 2 {
		block.Reset()
		for _, field := range []hpack.HeaderField{
			{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":authority", Value: "x"},
			{Name: ":path", Value: ratelimitv3.RateLimitService_ShouldRateLimit_FullMethodName},
			{Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"},
		} {
			must(t, headers.WriteField(field))
		}
		must(t, conn.SetWriteDeadline(time.Now().Add(5*time.Second)))
		err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true})
		if err == nil {
			err = framer.WriteData(stream, true, body)
		}
		if err != nil { // the server reads no more
			refused = true
			break
		}
	}
	expect(t, server.client(t), asking("shop user=a"), "OK: OK 4")
	// The only frames that the server can send are those that open or reset streams. It refuses all calls beyond
	// MaxStreams.
	must(t, conn.SetReadDeadline(time.Now().Add(30*time.Second)))
	for streams := 0; streams < 500 && !refused; {
		frame, err := framer.ReadFrame()
		if err != nil {
			t.Fatalf("%d calls were refused, want 500: %v", streams, err)
		}
		if reset, ok := frame.(*http2.RSTStreamFrame); ok && reset.ErrCode == http2.ErrCodeRefusedStream {
			streams++
		}
	}
	if n := server.stats.TotalRequests.Load(); n > transport.MaxStreams+1 {
		t.Errorf("%d decisions", n)
	}
}

// Settings are read, and errors about them name their variables.
func TestSettings(t *testing.T) {
	s, warnings, err := FromEnvironment([]string{
		"RUNTIME_ROOT=/data", "RUNTIME_SUBDIRECTORY=rl", "GRPC_PORT=1234", "NEAR_LIMIT_RATIO=0.5", "LOG_LEVEL=debug",
		"USE_STATSD=false", "REDIS_TIMEOUT=5s", "TRACING_ENABLED=true", "MEMCACHE_HOST_PORT=x", "REDIS_URL=redis:6379", "REDIS_SOCKET_TYPE=TCP", "HOME=/root",
	})
	must(t, err)
	if s.ConfigDir != "/data/rl/config" || s.GRPC != "0.0.0.0:1234" || s.HTTP != "0.0.0.0:8080" || s.Debug != "0.0.0.0:6070" || s.Metrics != ":9090" || s.NearLimit != 0.5 || s.LogLevel != slog.LevelDebug {
		t.Errorf("%+v", s)
	}
	if len(warnings) != 3 || !strings.HasPrefix(warnings[0], "MEMCACHE_HOST_PORT is set but has no effect: ") {
		t.Errorf("%q", warnings)
	}
	for _, bad := range []string{
		"PORT=x", "PORT=70000", "SHADOW_MODE=perhaps", "GRPC_MAX_CONNECTION_AGE=long", "NEAR_LIMIT_RATIO=most", "LOG_LEVEL=loud",
		"STATSD_PORT=x", "STATS_FLUSH_INTERVAL=0", "STATS_FLUSH_INTERVAL=-1s", "EXTRA_TAGS=x",
		"XDS_CLIENT_BACKOFF_INITIAL_INTERVAL=long", "XDS_CLIENT_BACKOFF_MAX_INTERVAL=1", "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS=token=secret",
		"TIERLIMIT_DEADLINE=0s", "TIERLIMIT_DEADLINE=11s", "TIERLIMIT_DEADLINE=15", "GRPC_MAX_CONNECTION_AGE=-1s", "GRPC_MAX_CONNECTION_AGE_GRACE=long", "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS=a b:secret",
		"BACKEND_TYPE=memcache", "CONFIG_TYPE=ETCD", "CONFIG_GRPC_XDS_SERVER_URL=http://a:1", "REDIS_TYPE=ring", "REDIS_SOCKET_TYPE=udp", "REDIS_POOL_SIZE=-1", "TIERLIMIT_FLEET_SIZE=0", "TIERLIMIT_FLEET_SIZE=1000001", "GRPC_SERVER_USE_TLS=true",
	} {
		name, _, _ := strings.Cut(bad, "=")
		if _, _, err := FromEnvironment([]string{bad}); err == nil || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", bad, err)
		}
	}
	for _, bad := range [][2]string{
		{"GRPC_SERVER_USE_TLS=true", "GRPC_SERVER_TLS_CERT=c"}, {"GRPC_SERVER_TLS_KEY=k", "GRPC_SERVER_USE_TLS=true"},
		{"USE_PROMETHEUS=true", "PROMETHEUS_PATH=metrics"}, {"USE_PROMETHEUS=true", "PROMETHEUS_PATH=/{"}, {"LIMIT_RESPONSE_HEADERS_ENABLED=true", "LIMIT_RESET_HEADER=\xff"},
	} {
		name, _, _ := strings.Cut(bad[1], "=")
		if _, _, err := FromEnvironment(bad[:]); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if _, _, err := FromEnvironment([]string{"USE_PROMETHEUS=yes", "STATS_FLUSH_INTERVAL=1"}); err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("two mistakes: %v", err)
	}
	for settings, want := range map[string]string{
		"GRPC_CLIENT_TLS_CACERT=ca": "GRPC_SERVER_USE_TLS",
		"GRPC_CLIENT_TLS_SAN=envoy": "GRPC_SERVER_USE_TLS",
		"GRPC_SERVER_USE_TLS=1 GRPC_SERVER_TLS_CERT=c GRPC_SERVER_TLS_KEY=k GRPC_CLIENT_TLS_SAN=envoy":    "GRPC_CLIENT_TLS_CACERT",
		"REDIS_URL=a:1 REDIS_TLS_CACERT=ca REDIS_TLS_SKIP_HOSTNAME_VERIFICATION=false":                    "(REDIS_TLS)",
		"REDIS_URL=a:1 REDIS_TLS_SKIP_HOSTNAME_VERIFICATION=true":                                         "(REDIS_TLS)",
		"REDIS_URL=rediss://a:1 REDIS_TLS_CLIENT_KEY=k":                                                   "REDIS_TLS_CLIENT_CERT is not set",
		"CONFIG_TYPE=GRPC_XDS_SOTW CONFIG_GRPC_XDS_SERVER_USE_TLS=true CONFIG_GRPC_XDS_CLIENT_TLS_CERT=c": "CONFIG_GRPC_XDS_CLIENT_TLS_KEY is not set",
		"REDIS_URL=a:1 REDIS_PERSECOND=true REDIS_PERSECOND_URL=b:1 REDIS_TLS_CACERT=ca":                  "(REDIS_TLS)",
		"REDIS_URL=a:1 REDIS_SENTINEL_AUTH=word":                                                          "(REDIS_TYPE)",
		"REDIS_URL=a:1 REDIS_PERSECOND_URL=b:1":                                                           "(REDIS_PERSECOND)",
		"CONFIG_GRPC_XDS_SERVER_URL=a:1":                                                                  "(CONFIG_TYPE)",
		"CONFIG_TYPE=GRPC_XDS_SOTW CONFIG_GRPC_XDS_SERVER_URL=a:1 CONFIG_GRPC_XDS_SERVER_TLS_CACERT=c":    "(CONFIG_GRPC_XDS_SERVER_USE_TLS)",
	} {
		if _, warnings, err := FromEnvironment(append(strings.Fields(settings), "GRPC_SERVER_TLS_OTHER=x")); err != nil || len(warnings) != 1 || !strings.Contains(warnings[0], want) {
			t.Errorf("%s: %q, %v", settings, warnings, err)
		}
	}
	if _, warnings, err := FromEnvironment([]string{"GRPC_SERVER_USE_TLS=1", "GRPC_SERVER_TLS_CERT=c", "GRPC_SERVER_TLS_KEY=k", "GRPC_CLIENT_TLS_CACERT=ca", "GRPC_CLIENT_TLS_SAN=envoy"}); err != nil || len(warnings) != 0 {
		t.Errorf("clients that show a certificate: %q, %v", warnings, err)
	}
	for _, settings := range []string{
		"REDIS_URL=rediss://a:1 REDIS_TLS_CACERT=ca", "REDIS_URL=a:1 REDIS_TLS=true REDIS_TLS_CACERT=ca", "REDIS_TYPE=sentinel REDIS_URL=m,a:1 REDIS_SENTINEL_AUTH=word",
		"REDIS_URL=a:1 REDIS_PERSECOND=true REDIS_PERSECOND_URL=b:1 REDIS_PERSECOND_TLS=true REDIS_TLS_CACERT=ca",
		"CONFIG_TYPE=GRPC_XDS_SOTW CONFIG_GRPC_XDS_SERVER_URL=a:1 CONFIG_GRPC_XDS_SERVER_USE_TLS=true CONFIG_GRPC_XDS_SERVER_TLS_CACERT=c",
		"TIERLIMIT_DEADLINE=1ms", "TIERLIMIT_DEADLINE=10s", "LIMIT_RESPONSE_HEADERS_ENABLED=true LIMIT_RESET_HEADER=x-azAZ09_~",
	} {
		if _, warnings, err := FromEnvironment(strings.Fields(settings)); err != nil || len(warnings) != 0 {
			t.Errorf("%s: %q, %v", settings, warnings, err)
		}
	}
	for _, char := range "`{@[/: é" { // next to letters and digits, and others
		environ := []string{"LIMIT_RESPONSE_HEADERS_ENABLED=true", "LIMIT_RESET_HEADER=x" + string(char)}
		if _, warnings, err := FromEnvironment(environ); err != nil || (len(warnings) == 1) != (char != '`') {
			t.Errorf("a header with %q: %q, %v", char, warnings, err)
		}
		environ = []string{"CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS=" + string(char) + "a:b"}
		if _, _, err := FromEnvironment(environ); err == nil {
			t.Errorf("a header with %q is accepted for the control plane", char)
		}
	}
	// envoyproxy/ratelimit leaves out what is not like name=value, and starts.
	if s, warnings, err := FromEnvironment([]string{"CONFIG_GRPC_XDS_NODE_METADATA=a:b,c=d=e,"}); err != nil || !maps.Equal(s.XDS.NodeMetadata, map[string]string{"c": "d=e"}) || len(warnings) != 1 || !strings.Contains(warnings[0], `CONFIG_GRPC_XDS_NODE_METADATA has no "=" in its part 1`) {
		t.Errorf("metadata of the node: %v, %q, %v", s.XDS.NodeMetadata, warnings, err)
	}
	// Numbers have Go's forms, as in envoyproxy/ratelimit.
	if s, _, err := FromEnvironment([]string{"LOCAL_CACHE_SIZE_IN_BYTES=0x100000", "PORT=8_080", "REDIS_POOL_SIZE=0b11"}); err != nil || !s.RememberDenials || s.HTTP != "0.0.0.0:8080" || s.Redis.PoolSize != 3 {
		t.Errorf("numbers: %+v, %v", s, err)
	}
	if _, warnings, err := FromEnvironment([]string{"LOG_FORMAT=xml"}); err != nil || len(warnings) != 1 || !strings.Contains(warnings[0], `LOG_FORMAT is "xml", must be text or json`) {
		t.Errorf("a form of logs: %q, %v", warnings, err)
	}
	if _, warnings, err := FromEnvironment([]string{"TIERLIMIT_FLEET_SIZE=3"}); err != nil || len(warnings) != 1 || !strings.Contains(warnings[0], "REDIS_URL is not set") {
		t.Errorf("a fleet without Redis: %q, %v", warnings, err)
	}
	for _, one := range []string{"REDIS_URL=redis:6379", "REDIS_PERSECOND_URL=redis:6379"} {
		if _, _, err := FromEnvironment([]string{"REDIS_PERSECOND=true", one}); !errors.Is(err, ErrInvalidSetting) {
			t.Errorf("two Redis, one named by %s: %v", one, err)
		}
	}
}

// A value with which envoyproxy/ratelimit starts does not keep this service from starting. What it cannot mean here is
// replaced, with a warning.
func TestOddSettings(t *testing.T) {
	used := func(environ string) (Settings, string) {
		s, warnings, err := FromEnvironment(strings.Split(environ, " "))
		if err != nil {
			t.Errorf("%s: %v", environ, err)
		}
		return s, strings.Join(warnings, "\n")
	}
	for _, ratio := range []string{"1.5", "80", "-1", "NaN", "Inf"} {
		if s, warning := used("NEAR_LIMIT_RATIO=" + ratio); s.NearLimit != 1 || !strings.Contains(warning, "no hits count as near") {
			t.Errorf("%s: %v, %q", ratio, s.NearLimit, warning)
		}
	}
	for _, port := range []string{"0", "-1", "70000"} {
		if s, warning := used("STATSD_PORT=" + port); s.Statsd.Network != "" || !strings.Contains(warning, "a STATSD_PORT that is no port") || strings.Contains(warning, "\n") {
			t.Errorf("%s: %+v, %q", port, s.Statsd, warning)
		}
		if _, warning := used("USE_STATSD=false STATSD_PORT=" + port); !strings.Contains(warning, "(USE_STATSD") || strings.Contains(warning, "\n") {
			t.Errorf("%s, without statsd: %q", port, warning)
		}
	}
	if s, warning := used("STATS_FLUSH_INTERVAL=1ms"); s.StatsdEvery != shortestFlush || !strings.Contains(warning, "STATS_FLUSH_INTERVAL is 1ms: 100ms is used") {
		t.Errorf("statistics every %v, %q", s.StatsdEvery, warning)
	}
	if s, warning := used("REDIS_POOL_SIZE=1_000_000"); s.Redis.PoolSize != 100_000 || !strings.Contains(warning, "REDIS_POOL_SIZE is 1000000: 100000 is used") {
		t.Errorf("%d connections, %q", s.Redis.PoolSize, warning)
	}
	if s, warning := used("XDS_CLIENT_BACKOFF_MAX_INTERVAL=-1s"); s.XDS.RetryAtMost != shortestRetry || !strings.Contains(warning, "10ms is used") {
		t.Errorf("%+v, %q", s.XDS, warning)
	}
	if s, warning := used("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL=0 XDS_CLIENT_BACKOFF_MAX_INTERVAL=1ms"); s.XDS.RetryAfter != shortestRetry || s.XDS.RetryAtMost != shortestRetry || strings.Count(warning, "10ms is used") != 2 {
		t.Errorf("%+v, %q", s.XDS, warning)
	}
	if s, warning := used("GRPC_MAX_CONNECTION_AGE_GRACE=-1s"); s.MaxConnectionAgeGrace != -time.Second || !strings.Contains(warning, "calls are cut off") {
		t.Errorf("%+v, %q", s, warning)
	}
	// Less than 10 ns would end the process at the first connection.
	for text, want := range map[string]time.Duration{"1ns": shortestAge, "999us": shortestAge, "1ms": time.Millisecond, "0": 0} {
		if s, warning := used("GRPC_MAX_CONNECTION_AGE=" + text); s.MaxConnectionAge != want || (warning != "") != (text == "1ns" || text == "999us") {
			t.Errorf("an age of %s: %v, %q", text, s.MaxConnectionAge, warning)
		}
	}
	for text, want := range map[string]int{"2147483647": math.MaxInt32, "9999999999": 9_999_999_999, "-1": 0} {
		if s, warning := used("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES=" + text); s.XDS.LongestMessage != want || (warning != "") != (text == "-1") {
			t.Errorf("messages of %s bytes: %d, %q", text, s.XDS.LongestMessage, warning)
		}
	}
	for settings, want := range map[string]string{"PROMETHEUS_PATH=metrics": "metrics are served at /metrics", "DISABLE_STATS=1 PROMETHEUS_PATH=metrics": "", "USE_PROMETHEUS=false PROMETHEUS_PATH=/{": ""} {
		if s, warning := used(settings); !strings.Contains(warning, want) || (warning == "") != (want == "") || s.Metrics != "" && s.MetricsPath != "/metrics" {
			t.Errorf("%s: %s, %q", settings, s.MetricsPath, warning)
		}
	}
	if s, warning := used("LIMIT_RESPONSE_HEADERS_ENABLED=true LIMIT_LIMIT_HEADER=X-Limit:"); s.LimitHeader != "X-Limit:" || !strings.Contains(warning, `LIMIT_LIMIT_HEADER is "X-Limit:", which is no name of a header`) {
		t.Errorf("%s, %q", s.LimitHeader, warning)
	}
	if _, warning := used("LIMIT_RESET_HEADER=x: LIMIT_REMAINING_HEADER=\xff"); warning != "" { // headers are not enabled
		t.Error(warning)
	}
	names := make(map[string]bool)
	for _, prefix := range []string{"a/b", "a_b", "{rl}", "é", strings.Repeat("x", 40), strings.Repeat("x", 41)} {
		s, warning := used("CACHE_KEY_PREFIX=" + prefix)
		if _, err := remote.NewKeyspace(s.Prefix); err != nil || names[s.Prefix] || (warning != "") != (prefix != "a_b") {
			t.Errorf("%s: %s, %v, %q", prefix, s.Prefix, err, warning)
		}
		names[s.Prefix] = true
	}
	if s, warning := used("LOCAL_CACHE_SIZE_IN_BYTES=-1 REDIS_POOL_SIZE=0 EXTRA_TAGS=\t CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS=\t"); !s.RememberDenials || warning != "" {
		t.Errorf("%+v, %q", s, warning)
	}
	used("REDIS_PERSECOND_TYPE=none REDIS_PERSECOND_SOCKET_TYPE=none REDIS_PERSECOND_POOL_SIZE=-1")
	used("REDIS_TYPE=cluster REDIS_SOCKET_TYPE=none")
	if s, _ := used("DISABLE_STATS=true USE_STATSD=true USE_DOG_STATSD=true"); s.Statsd.Network != "" {
		t.Errorf("%+v", s.Statsd)
	}
	if s, _ := used("HOST= GRPC_HOST= DEBUG_HOST="); s.HTTP != ":8080" || s.GRPC != ":8081" || s.Debug != ":6070" {
		t.Errorf("all addresses: %s, %s, %s", s.HTTP, s.GRPC, s.Debug)
	}
	if _, warning := used("REDIS_URL=a:1 REDIS_TLS=true REDIS_TLS_CLIENT_CERT=/none"); !strings.Contains(warning, "REDIS_TLS_CLIENT_KEY is not set") {
		t.Errorf("a certificate without its key: %q", warning)
	}
	if _, warning := used("CONFIG_TYPE=GRPC_XDS_SOTW CONFIG_GRPC_XDS_SERVER_USE_TLS=true CONFIG_GRPC_XDS_CLIENT_TLS_KEY=/none"); !strings.Contains(warning, "CONFIG_GRPC_XDS_CLIENT_TLS_CERT is not set") {
		t.Errorf("a key without its certificate: %q", warning)
	}
	for _, name := range []string{"REDIS_POOL_ON_EMPTY_WAIT_DURATION", "REDIS_PERSECOND_POOL_ON_EMPTY_WAIT_DURATION"} { // only documented
		if _, warning := used(name + "=1s"); !strings.HasPrefix(warning, name+" is set but has no effect: TIERLIMIT_DEADLINE ") {
			t.Errorf("%s: %q", name, warning)
		}
	}
	for _, s := range []RedisSettings{
		{Type: "cluster", URL: "a:1, b:2,"},
		{Type: "sentinel", URL: "m, a:1,b:2,"},
		{Type: "single", URL: "a:1", TLS: true, Files: RedisTLSFiles{Certificate: "/none"}},
	} {
		if _, err := s.options("REDIS_"); err != nil {
			t.Errorf("%+v: %v", s, err)
		}
	}
	alone := XDSSettings{Server: "a:1", UseTLS: true, Certificate: "/none"}
	connection, err := alone.dial()
	must(t, err)
	must(t, connection.Close())
	s, _ := used("DEBUG_HOST=127.0.0.1 DEBUG_PORT=-1 HOST=127.0.0.1 GRPC_HOST=127.0.0.1 PORT=0 GRPC_PORT=0 USE_PROMETHEUS=false USE_STATSD=false RUNTIME_ROOT=" + t.TempDir())
	server, err := Start(t.Context(), s, slog.New(slog.DiscardHandler))
	must(t, err)
	server.Close()
}

// REDIS_SOCKET_TYPE may name one version of the internet protocol.
func TestRedisOfOneProtocolVersion(t *testing.T) {
	_, port, err := net.SplitHostPort(redistest.Shared(t).Addr()) // it listens at 127.0.0.1
	must(t, err)
	for network, reached := range map[string]bool{"tcp": true, "tcp4": true, "tcp6": false} {
		s := RedisSettings{Type: "single", Network: network, URL: "localhost:" + port}
		o, err := s.options("REDIS_")
		must(t, err)
		client := goredis.NewUniversalClient(o)
		if err := client.Ping(t.Context()).Err(); (err == nil) != reached {
			t.Errorf("%s: %v", network, err)
		}
		must(t, client.Close())
	}
}

// Errors about unusable files and addresses name the variables that set them.
func TestVariablesOfErrors(t *testing.T) {
	locked := redistest.Start(t)
	must(t, locked.Client(t).ConfigSet(t.Context(), "requirepass", "word").Err())
	file := filepath.Join(t.TempDir(), "server")
	newAuthority(t).issue(t, file, "127.0.0.1", 1)
	encrypted := "REDIS_TLS=true REDIS_URL=" + redistest.StartTLS(t).TLSAddr
	for settings, want := range map[string]string{
		"GRPC_SERVER_USE_TLS=true GRPC_SERVER_TLS_KEY=/none GRPC_SERVER_TLS_CERT=" + file + ".crt":                                                    "GRPC_SERVER_TLS_KEY",
		"GRPC_SERVER_USE_TLS=true GRPC_SERVER_TLS_KEY=" + file + ".key GRPC_SERVER_TLS_CERT=" + file + ".crt GRPC_CLIENT_TLS_CACERT=/none":            "GRPC_CLIENT_TLS_CACERT",
		"GRPC_SERVER_USE_TLS=true GRPC_SERVER_TLS_KEY=" + file + ".key GRPC_SERVER_TLS_CERT=" + file + ".crt GRPC_CLIENT_TLS_CACERT=" + file + ".key": "GRPC_CLIENT_TLS_CACERT",
		"CONFIG_TYPE=GRPC_XDS_SOTW CONFIG_GRPC_XDS_SERVER_USE_TLS=true CONFIG_GRPC_XDS_SERVER_TLS_CACERT=/none":                                       "CONFIG_GRPC_XDS_SERVER_TLS_CACERT",
		"CONFIG_TYPE=GRPC_XDS_SOTW CONFIG_GRPC_XDS_SERVER_USE_TLS=true CONFIG_GRPC_XDS_CLIENT_TLS_CERT=/none CONFIG_GRPC_XDS_CLIENT_TLS_KEY=/none":    "CONFIG_GRPC_XDS_CLIENT_TLS_CERT",
		"REDIS_URL=127.0.0.1:1 REDIS_TLS=true REDIS_TLS_CACERT=/none":                                                                                 "REDIS_TLS_CACERT",
		"REDIS_URL=127.0.0.1":                            `REDIS_URL is "127.0.0.1"`,
		"REDIS_URL=" + locked.Addr():                     "REDIS_URL, REDIS_AUTH",
		encrypted + " REDIS_TLS_CACERT=" + file + ".crt": "REDIS_TLS_CACERT",
		encrypted + " REDIS_TLS_SKIP_HOSTNAME_VERIFICATION=true REDIS_TLS_CACERT=" + file + ".crt": "REDIS_TLS_CACERT",
		encrypted + " REDIS_TLS_SKIP_HOSTNAME_VERIFICATION=true":                                   "REDIS_TLS_CACERT",
		"CONFIG_TYPE=GRPC_XDS_SOTW CONFIG_GRPC_XDS_SERVER_URL=%zz":                                 "CONFIG_GRPC_XDS_SERVER_URL",
		"REDIS_URL=127.0.0.1:":                           "REDIS_URL",
		"REDIS_URL=127.0.0.1:70000":                      "REDIS_URL",
		"REDIS_URL=secret@redis":                         "REDIS_URL",
		"REDIS_TYPE=sentinel REDIS_URL=mymaster,a:1,b":   "REDIS_URL",
		"REDIS_TYPE=cluster REDIS_URL=a:1,b":             "REDIS_URL",
		"HOST=nowhere.invalid":                           "HOST, PORT",
		"GRPC_HOST=nowhere.invalid":                      "GRPC_HOST, GRPC_PORT",
		"GRPC_UDS=/nowhere/s":                            "GRPC_UDS",
		"USE_PROMETHEUS=true PROMETHEUS_ADDR=127.0.0.1x": "PROMETHEUS_ADDR",
	} {
		s, _, err := FromEnvironment(append([]string{
			"HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1", "PORT=0", "GRPC_PORT=0", "DEBUG_PORT=0", "USE_PROMETHEUS=false", "USE_STATSD=false", "RUNTIME_ROOT=" + t.TempDir(),
		}, strings.Fields(settings)...))
		must(t, err)
		server, err := Start(t.Context(), s, slog.New(slog.DiscardHandler))
		if err == nil {
			server.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %s", settings, err, want)
		}
	}
}

// lines receives log lines, and drops them when it is full.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	select {
	case l <- string(line):
	default:
	}
	return len(line), nil
}

// A directory or control plane that cannot be reached may still appear, so it is no error. The log names the
// variables that set it.
func TestVariablesOfLogs(t *testing.T) {
	t.Parallel()
	for settings, want := range map[string]string{
		"RUNTIME_ROOT=" + filepath.Join(t.TempDir(), "nowhere"):                  "(RUNTIME_ROOT, RUNTIME_SUBDIRECTORY, RUNTIME_APPDIRECTORY)",
		"CONFIG_TYPE=GRPC_XDS_SOTW CONFIG_GRPC_XDS_SERVER_URL=nowhere.invalid:1": "(CONFIG_GRPC_XDS_SERVER_URL)",
	} {
		s, _, err := FromEnvironment(append([]string{
			"HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1", "PORT=0", "GRPC_PORT=0", "DEBUG_PORT=0", "USE_PROMETHEUS=false", "USE_STATSD=false",
		}, strings.Fields(settings)...))
		must(t, err)
		logged := make(lines, 100)
		server, err := Start(t.Context(), s, slog.New(slog.NewTextHandler(logged, nil)))
		must(t, err)
		defer server.Close()
		late := time.After(30 * time.Second)
		for told := false; !told; {
			select {
			case line := <-logged:
				told = strings.Contains(line, want)
			case <-late:
				t.Fatalf("%s: nothing is said of %s", settings, want)
			}
		}
	}
}

// At the level debug, each request is logged with the limits that apply and its answer, and at other levels none is.
func TestRequestsInLogs(t *testing.T) {
	for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo} {
		s, _, err := FromEnvironment([]string{
			"HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1", "PORT=0", "GRPC_PORT=0", "DEBUG_PORT=0",
			"USE_PROMETHEUS=false", "USE_STATSD=false", "RUNTIME_ROOT=" + configDir(t, shop),
		})
		must(t, err)
		logged := make(lines, 1000)
		server, err := Start(t.Context(), s, slog.New(slog.NewTextHandler(logged, &slog.HandlerOptions{Level: level})))
		must(t, err)
		request := asking("shop zero=anna nothing=b free=c user=d")
		request.Descriptors[3].Limit = &commonv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 7, Unit: typev3.RateLimitUnit_DAY}
		ask(t, server.client(t), request)
		ask(t, server.client(t), asking("shop"))
		server.Close()
		var all []string
		for len(logged) > 0 {
			if line := <-logged; strings.Contains(line, "msg=request") {
				all = append(all, line)
			}
		}
		switch {
		case level != slog.LevelDebug && len(all) == 0:
		case level == slog.LevelDebug && len(all) == 2 && strings.Contains(all[0], "anna") && strings.Contains(all[0], "OVER_LIMIT") &&
			strings.Contains(all[0], `limits="[shop.zero none unlimited its own]"`) && strings.Contains(all[1], "the request has no descriptors"):
		default:
			t.Errorf("%v: %q", level, all)
		}
	}
}

// The address of Redis is shown without passwords, even if it cannot be parsed.
func TestRedisSettings(t *testing.T) {
	for url, want := range map[string]string{
		"127.0.0.1:6379":                        "single 127.0.0.1:6379",
		"redis://user:secret@127.0.0.1:6379/3":  "single redis://127.0.0.1:6379/3",
		"user:secret@127.0.0.1:6379":            "single 127.0.0.1:6379",
		"redis://127.0.0.1:1/2?password=secret": "single redis://127.0.0.1:1/2",
		"redis:///?password=secret":             "single redis:///",
		"unix://user:secret@/tmp/redis?db=1":    "single unix:///tmp/redis",
		"redis://user:12,3@127.0.0.1:1/2":       "single redis://127.0.0.1:1/2",
	} {
		s := RedisSettings{Type: "single", URL: url, PoolSize: 1}
		if got := s.shown(); got != want {
			t.Errorf("%s: %s", url, got)
		}
	}
	s := RedisSettings{Type: "single", URL: "redis://user:sec#ret@host:port"}
	if _, err := s.options("REDIS_"); err == nil || strings.Contains(err.Error(), "sec") {
		t.Error(err)
	}
	s = RedisSettings{Type: "sentinel", URL: "mymaster,a:1,b:2", Auth: "user:pass", SentinelAuth: "word"}
	if o, err := s.options("REDIS_"); err != nil || o.MasterName != "mymaster" || len(o.Addrs) != 2 || o.Username != "user" || o.SentinelPassword != "word" {
		t.Errorf("%+v, %v", o, err)
	}
	s = RedisSettings{Type: "cluster", URL: "a:1,b:2"}
	if o, err := s.options("REDIS_"); err != nil || !o.IsClusterMode || len(o.Addrs) != 2 {
		t.Errorf("%+v, %v", o, err)
	}
	for _, c := range []struct{ kind, url, auth, sentinelAuth, want string }{
		{"single", "redis://u:url@a:1", "", "", "u:url, :"},
		{"single", "redis://:url@a:1", "auth", "", ":auth, :"},
		{"single", "redis://a:1", "u:auth", "", "u:auth, :"},
		{"sentinel", "mymaster,redis://:url@a:1,redis://:url@b:2", "auth", "", ":auth, :url"},
		{"sentinel", "mymaster,redis://:url@a:1", "", "u:sentinel", ":, u:sentinel"},
	} {
		s := RedisSettings{Type: c.kind, URL: c.url, Auth: c.auth, SentinelAuth: c.sentinelAuth}
		o, err := s.options("REDIS_")
		must(t, err)
		if got := o.Username + ":" + o.Password + ", " + o.SentinelUsername + ":" + o.SentinelPassword; got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
	s = RedisSettings{Type: "sentinel", URL: "mymaster"}
	if _, err := s.options("REDIS_"); err == nil {
		t.Error("a master without sentinels")
	}
}

// A relative path of a socket is that of the working directory, as in envoyproxy/ratelimit. Where REDIS_SOCKET_TYPE does
// not say that it is a socket, a slash does.
func TestRedisAtARelativePath(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, c := range []struct{ network, url, want string }{
		{"unix", "redis.sock", dir + "/redis.sock"},
		{"unix", "./run/redis,1.sock", dir + "/run/redis,1.sock"},
		{"unix", "127.0.0.1:6379", "127.0.0.1:6379"},
		{"", "../redis.sock", filepath.Dir(dir) + "/redis.sock"},
		{"unix", "/a:b@c.sock", "/a:b@c.sock"},
		{"", "redis.sock", ""},
		{"", "redis:6379/0", ""},
		{"unix", "user:secret@redis/0", ""},
		{"tcp", "./redis.sock", ""},
	} {
		s := RedisSettings{Type: "single", Network: c.network, URL: c.url}
		o, err := s.options("REDIS_")
		if (err == nil) != (c.want != "") || err == nil && o.Addrs[0] != c.want {
			t.Errorf("%+v: %+v, %v", c, o, err)
		}
	}
	redistest.Start(t, "--unixsocket", filepath.Join(dir, "redis.sock"))
	server := start(t, shop, "REDIS_SOCKET_TYPE=unix", "REDIS_URL=redis.sock")
	expect(t, server.client(t), asking("shop user=a"), "OK: OK 4")
	if server.limiters.All.Degraded() {
		t.Error("Redis is not reached")
	}
}

// As in envoyproxy/ratelimit, a redis:// URL may have the credentials and the database as parameters, what stands
// before and behind the host goes before them, and unknown parameters have no effect.
func TestRedisURLParameters(t *testing.T) {
	for url, want := range map[string]string{
		"redis://a:1?password=p@:ss":                        "a:1 :p@:ss 0",
		"redis://a:1/?username=u&password=word&db=3":        "a:1 u:word 3",
		"redis://us:er@a:1/2?username=u&password=word&db=3": "a:1 us:er 2",
		"redis://us@a:1?password=word":                      "a:1 us:word 0",
		"redis://:er@a:1?username=u":                        "a:1 u:er 0",
		"rediss://us:e%40r@[::1]:1?protocol=x&foo=bar":      "[::1]:1 us:e@r 0",
		"unix://us:er@/tmp/redis.sock?db=3":                 "/tmp/redis.sock us:er 3",
	} {
		s := RedisSettings{Type: "single", URL: url}
		o, err := s.options("REDIS_")
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		if got := fmt.Sprintf("%s %s:%s %d", o.Addrs[0], o.Username, o.Password, o.DB); got != want {
			t.Errorf("%s: %s, want %s", url, got, want)
		}
	}
	for _, url := range []string{"redis://a:1?db=x", "redis://a:b?password=secret", "redis://a:b?password=secret,x"} {
		s := RedisSettings{Type: "sentinel", URL: "m," + url}
		if _, err := s.options("REDIS_"); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", url, err)
		}
		if shown := s.shown(); strings.Contains(shown, "secret") {
			t.Error(shown)
		}
	}
}

// Try and Check work against a service on the embedded Redis.
func TestTryAndCheck(t *testing.T) {
	dir := configDir(t, shop)
	server := startOn(t, "", dir)
	var out strings.Builder
	must(t, Try(t.Context(), server.Addr("grpc").String(), "domain=shop,user=ann;many=x", 2, &out))
	if text := strings.ReplaceAll(out.String(), " ", ""); !strings.Contains(text, `"limitRemaining":3`) || !strings.Contains(text, `"limitRemaining":98`) {
		t.Error(out.String())
	}
	for _, bad := range []string{"", "user=ann", "domain=", "domain=d,=v"} {
		if err := Try(t.Context(), "127.0.0.1:1", bad, 0, io.Discard); err == nil {
			t.Errorf("%q was asked", bad)
		}
	}
	out.Reset()
	must(t, Check(filepath.Join(dir, "config"), "", nil, &out))
	if !strings.Contains(out.String(), "shop.free: unit=UNKNOWN requests_per_unit=0, shadow_mode: false, quota_mode: false, unlimited: true\n") {
		t.Error(out.String())
	}
	overlay := filepath.Join(t.TempDir(), "overlay.yaml")
	must(t, os.WriteFile(overlay, []byte(`limits: [{match: shop.user, window: 36h}]`), 0o600))
	out.Reset()
	must(t, Check(filepath.Join(dir, "config"), overlay, nil, &out))
	if !strings.Contains(out.String(), "shop.user: unit=SECOND requests_per_unit=5, shadow_mode: false, quota_mode: false, window: 36h0m0s, overlay: "+overlay+":1:10\n") {
		t.Error(out.String())
	}
	must(t, os.WriteFile(filepath.Join(dir, "config", "broken.yaml"), []byte("domain: d\ndescriptors: [{}]"), 0o600))
	if err := Check(filepath.Join(dir, "config"), "", nil, &out); err == nil || err.Error() != "broken.yaml:2:15: a descriptor has no key" {
		t.Error(err)
	}
	for _, c := range []struct{ files, environ, want string }{
		// This mistake only shows when rules are made.
		{"domain: d\ndescriptors: [{key: k, rate_limit: {unit: second, requests_per_unit: 1000000, algorithm: sliding-log}}]", "", "f0.yaml:2:36: "},
		{"domain: d|domain: d", "", "f1.yaml:1:1: "},
		{"domain: d|domain: d", "MERGE_DOMAIN_CONFIG=true", ""},
		{"domain: d", "MERGE_DOMAIN_CONFIG=perhaps", "MERGE_DOMAIN_CONFIG"},
	} {
		err := Check(filepath.Join(configDir(t, strings.Split(c.files, "|")...), "config"), "", strings.Fields(c.environ), io.Discard)
		if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: %v, want %q", c.files, c.environ, err, c.want)
		}
	}
}

// Variables determine where statistics are sent, and variables without effect are reported.
func TestStatsdSettings(t *testing.T) {
	for environ, want := range map[string]string{
		"": "tcp localhost:8125",
		"STATSD_HOST=h STATSD_PORT=9125 EXTRA_TAGS=a:b,c:d": "tcp h:9125 map[a:b c:d]",
		"USE_STATSD=true STATSD_PROTOCOL=UDP":               "udp localhost:8125",
		"USE_STATSD=true STATSD_PROTOCOL=tcp4":              "tcp4 localhost:8125",
		"USE_STATSD=true STATSD_PROTOCOL=unix":              "STATSD_PROTOCOL",
		"USE_DOG_STATSD=true STATSD_PROTOCOL=none":          "udp localhost:8125 dog container",
		"DISABLE_STATS=true STATSD_PROTOCOL=none":           "STATSD_PROTOCOL",
		"USE_DOG_STATSD=true":                               "udp localhost:8125 dog container",
		"USE_DOG_STATSD=true USE_STATSD=false":              "udp localhost:8125 dog container",
		"USE_DOG_STATSD=true DD_ENV=prod DD_VERSION=1.2":    "udp localhost:8125 dog container [env:prod version:1.2]",
		"USE_DOG_STATSD=true DD_ENTITY_ID=e":                "udp localhost:8125 dog [dd.internal.entity_id:e]",
		"USE_DOG_STATSD=true DD_ORIGIN_DETECTION_ENABLED=F": "udp localhost:8125 dog",
		"USE_DOG_STATSD=true DD_ORIGIN_DETECTION_ENABLED=?": "udp localhost:8125 dog container",
		"DD_ENV=prod":                                       "tcp localhost:8125",
		"USE_STATSD=false":                                  "",
		"USE_PROMETHEUS=true":                               "",
		"DISABLE_STATS=true USE_STATSD=true":                "",
		"USE_PROMETHEUS=true USE_STATSD=true":               "tcp localhost:8125",
		"USE_PROMETHEUS=true EXTRA_TAGS=a:b":                "EXTRA_TAGS",
		"USE_STATSD=false STATSD_HOST=h":                    "STATSD_HOST",
		"USE_DOG_STATSD=true DOG_STATSD_MOGRIFIER_A_NAME=x": "udp localhost:8125 dog container DOG_STATSD_MOGRIFIER_A_NAME",
		"USE_DOG_STATSD=true USE_STATSD=true":               "error",
	} {
		s, warnings, err := FromEnvironment(strings.Fields(environ))
		var got []string
		if s.Statsd.Network != "" {
			got = append(got, s.Statsd.Network, s.Statsd.Address)
			if len(s.Statsd.Tags) > 0 {
				got = append(got, fmt.Sprint(s.Statsd.Tags))
			}
			if s.Statsd.Dog {
				got = append(got, "dog")
			}
			if s.Statsd.NameContainer {
				got = append(got, "container")
			}
			if len(s.Statsd.DogTags) > 0 {
				got = append(got, fmt.Sprint(s.Statsd.DogTags))
			}
		}
		for _, w := range warnings {
			name, _, _ := strings.Cut(w, " ")
			got = append(got, name)
		}
		if err != nil {
			got = []string{"error"}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %s, want %s (%v)", environ, strings.Join(got, " "), want, err)
		}
	}
}

// Every count up to the end is sent to statsd, even if the server was away for a while. The service does not wait for
// it.
func TestStatsd(t *testing.T) {
	unused, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	host, port, err := net.SplitHostPort(unused.Addr().String())
	must(t, err)
	must(t, unused.Close())
	server := start(t, shop, "USE_STATSD=true", "STATSD_HOST="+host, "STATSD_PORT="+port, "STATS_FLUSH_INTERVAL=100ms", "EXTRA_TAGS=zone:a.b")
	client := server.client(t)
	expect(t, client, asking("shop user=a"), "OK: OK 4")
	listener, err := net.Listen("tcp", unused.Addr().String())
	must(t, err)
	defer listener.Close()
	lines := make(chan string, 1000)
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			text, _ := io.ReadAll(connection)
			_ = connection.Close()
			for line := range strings.Lines(string(text)) {
				lines <- line
			}
		}
	}()
	const hits = "ratelimit.service.rate_limit.shop.user.total_hits.__zone=a_b:"
	for line := range lines { // until the first one arrives
		if strings.HasPrefix(line, hits) {
			if line != hits+"1|c\n" {
				t.Errorf("%q", line)
			}
			break
		}
	}
	for range 10 {
		ask(t, client, asking("shop user=a"))
	}
	server.Close()
	sums := make(map[string]int)
	name := strings.TrimSuffix(hits, ":")
	late := time.After(30 * time.Second)
	for sums[name] < 10 {
		select {
		case line := <-lines:
			counter, rest, _ := strings.Cut(line, ":")
			var n int
			if _, err := fmt.Sscanf(rest, "%d|c\n", &n); err == nil {
				sums[counter] += n
			} else if !strings.HasPrefix(counter, "ratelimit_server.ShouldRateLimit.response_time") {
				t.Errorf("%q", line)
			}
		case <-late:
			t.Fatalf("%d hits were sent, want 10: %v", sums[name], sums)
		}
	}
	if n := sums["ratelimit.service.rate_limit.shop.user.over_limit.__zone=a_b"]; n != 6 || sums[name] != 10 {
		t.Errorf("%d hits over the limit were sent, want 6 of 10: %v", n, sums)
	}
}
