package serve

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/serve/internal/xdsconfig"
	"github.com/tierlimit/tierlimit/tiered"
)

// controlPlane sends configurations, and receives the answers.
type controlPlane struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	send  chan *discoveryv3.DiscoveryResponse
	asked chan *discoveryv3.DiscoveryRequest
	token chan []string
}

func (c *controlPlane) StreamAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	headers, _ := metadata.FromIncomingContext(stream.Context())
	c.token <- headers.Get("token")
	for {
		request, err := stream.Recv()
		if err != nil {
			return err
		}
		c.asked <- request
		response, more := <-c.send
		if !more {
			return nil
		}
		if response == nil { // the stream breaks
			return net.ErrClosed
		}
		if err := stream.Send(response); err != nil {
			return err
		}
	}
}

func resource(t *testing.T, text string) *anypb.Any {
	t.Helper()
	m := dynamicpb.NewMessage(xdsconfig.Message)
	must(t, prototext.Unmarshal([]byte(text), m))
	value, err := proto.Marshal(m)
	must(t, err)
	return &anypb.Any{TypeUrl: xdsconfig.TypeURL, Value: value}
}

// startControlPlane starts a control plane and returns its address.
func startControlPlane(t *testing.T, options ...grpc.ServerOption) (*controlPlane, string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	plane := &controlPlane{send: make(chan *discoveryv3.DiscoveryResponse), asked: make(chan *discoveryv3.DiscoveryRequest), token: make(chan []string, 9)}
	control := grpc.NewServer(options...)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(control, plane)
	go func() { _ = control.Serve(listener) }()
	t.Cleanup(control.Stop)
	t.Cleanup(func() { close(plane.send) })
	return plane, listener.Addr().String()
}

// publish sends a configuration and returns the answer.
func (c *controlPlane) publish(version string, resources ...*anypb.Any) *discoveryv3.DiscoveryRequest {
	c.send <- &discoveryv3.DiscoveryResponse{VersionInfo: version, Nonce: "n" + version, TypeUrl: xdsconfig.TypeURL, Resources: resources}
	return <-c.asked
}

// A control plane's configuration is put in force and acknowledged. One with a mistake is refused, with the cause,
// and changes nothing. When a stream breaks, another is opened.
func TestXDS(t *testing.T) {
	plane, address := startControlPlane(t)
	server := startOn(t, redistest.Shared(t).Addr(), t.TempDir(), "CACHE_KEY_PREFIX="+redistest.Prefix(),
		"CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL="+address, "CONFIG_GRPC_XDS_NODE_ID=me",
		"CONFIG_GRPC_XDS_NODE_METADATA=zone=a", "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS=token:secret",
		"XDS_CLIENT_BACKOFF_INITIAL_INTERVAL=10ms", "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED=true")
	client := server.client(t)
	expect(t, client, asking("d k=v"), "Unknown")
	first := <-plane.asked
	if first.GetNode().GetId() != "me" || first.GetNode().GetMetadata().GetFields()["zone"].GetStringValue() != "a" || first.GetTypeUrl() != xdsconfig.TypeURL {
		t.Errorf("%v", first)
	}
	if token := <-plane.token; len(token) != 1 || token[0] != "secret" {
		t.Errorf("%q", token)
	}
	send := plane.publish
	ack := send("1",
		resource(t, `name: "a" domain: "d" descriptors { key: "k" shadow_mode: true rate_limit { unit: WEEK requests_per_unit: 2 name: "n" } descriptors { key: "l" value: "v*" quota_mode: true rate_limit { unlimited: true } metadata { fields { key: "m" value { number_value: 1.5 } } } } }`),
		resource(t, `name: "b" domain: "e" descriptors { key: "k" rate_limit { unit: YEAR requests_per_unit: 7 replaces { name: "n" } } }`))
	if ack.GetVersionInfo() != "1" || ack.GetResponseNonce() != "n1" || ack.GetErrorDetail() != nil {
		t.Errorf("%v", ack)
	}
	expect(t, client, asking("d k=v k=v,l=v1"), "OK: OK 1, OK")
	expect(t, client, asking("e k=v"), "OK: OK 6")

	for _, bad := range []*anypb.Any{
		resource(t, `name: "a" domain: "d" descriptors { key: "k" rate_limit { requests_per_unit: 2 } }`),
		{TypeUrl: xdsconfig.TypeURL, Value: []byte("\xff")},
		{TypeUrl: "type.googleapis.com/other", Value: nil},
	} {
		nack := send("2", bad)
		if nack.GetVersionInfo() != "1" || nack.GetResponseNonce() != "n2" || nack.GetErrorDetail().GetMessage() == "" {
			t.Errorf("%v", nack)
		}
	}
	if nack := send("3", resource(t, `name: "x" domain: "d" descriptors { key: "k" rate_limit { } }`)); !strings.HasPrefix(nack.GetErrorDetail().GetMessage(), `resource "x":5:`) {
		t.Errorf("%v", nack)
	}
	expect(t, client, asking("e k=v"), "OK: OK 5")

	plane.send <- nil
	again := <-plane.asked
	if again.GetVersionInfo() != "" || again.GetNode().GetId() != "me" { // see TestControlPlaneThatCountsVersionsAgain
		t.Errorf("%v", again)
	}
	expect(t, client, asking("e k=v"), "OK: OK 4")
	if ack := send("4"); ack.GetVersionInfo() != "4" || ack.GetErrorDetail() != nil {
		t.Errorf("%v", ack)
	}
	expect(t, client, asking("e k=v"), "OK: OK")
}

// Control planes such as Envoy Gateway answer a refusal at once by sending the same configuration again. That
// configuration is not read again, and the control plane is told only as often as files are looked at. Without this,
// both sides were busy with 3,500 refusals a second, each with a line in the log.
func TestControlPlaneThatRepeatsWhatWasRefused(t *testing.T) {
	plane, address := startControlPlane(t)
	server := startOn(t, "", t.TempDir(), "CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL="+address)
	<-plane.asked
	const times = 20
	began := time.Now()
	for range times {
		nack := plane.publish("1", resource(t, `name: "a" domain: "d" descriptors { key: "k" rate_limit { requests_per_unit: 2 } }`))
		if !strings.HasPrefix(nack.GetErrorDetail().GetMessage(), `resource "a":5:`) {
			t.Errorf("%v", nack)
		}
	}
	if took, least := time.Since(began), (times-1)*server.settings.LookEvery; took < least {
		t.Errorf("%d refusals took %v, want at least %v", times, took, least)
	}
	if n := server.stats.ConfigLoadError.Load(); n != 1 {
		t.Errorf("read %d times", n)
	}
	if ack := plane.publish("2", resource(t, `name: "a" domain: "d" descriptors { key: "k" rate_limit { unit: DAY requests_per_unit: 2 } }`)); ack.GetErrorDetail() != nil || ack.GetVersionInfo() != "2" {
		t.Errorf("%v", ack)
	}
	if ack := plane.publish("3"); ack.GetErrorDetail() != nil || ack.GetVersionInfo() != "3" {
		t.Errorf("%v", ack)
	}
}

// A first configuration without resources is put in force: it limits nothing.
func TestControlPlaneThatHasNothing(t *testing.T) {
	plane, address := startControlPlane(t)
	server := startOn(t, "", t.TempDir(), "CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL="+address)
	<-plane.asked
	if ack := plane.publish("1"); ack.GetErrorDetail() != nil || ack.GetVersionInfo() != "1" {
		t.Errorf("%v", ack)
	}
	expect(t, server.client(t), asking("d k=v"), "OK: OK")
}

// A refused configuration that is sent again after something that cannot be read is refused for its own mistakes.
func TestControlPlaneThatSendsARefusedConfigurationLater(t *testing.T) {
	plane, address := startControlPlane(t)
	startOn(t, "", t.TempDir(), "CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL="+address)
	<-plane.asked
	refused := resource(t, `name: "a" domain: "d" descriptors { key: "k" rate_limit { requests_per_unit: 2 } }`)
	for _, response := range []*discoveryv3.DiscoveryResponse{
		{TypeUrl: xdsconfig.TypeURL, Resources: []*anypb.Any{{TypeUrl: xdsconfig.TypeURL, Value: []byte("\xff")}}},
		{TypeUrl: "type.googleapis.com/other"},
	} {
		if nack := plane.publish("1", refused); !strings.HasPrefix(nack.GetErrorDetail().GetMessage(), `resource "a":5:`) {
			t.Errorf("%v", nack)
		}
		plane.send <- response
		if nack := <-plane.asked; nack.GetErrorDetail() == nil {
			t.Errorf("%v", nack)
		}
		if nack := plane.publish("1", refused); !strings.HasPrefix(nack.GetErrorDetail().GetMessage(), `resource "a":5:`) {
			t.Errorf("%v", nack)
		}
	}
}

// A control plane that has restarted may give another configuration a version that it has given before: Envoy Gateway
// counts from 1 again. Many control planes send nothing to a client that says it has their version.
func TestControlPlaneThatCountsVersionsAgain(t *testing.T) {
	plane, address := startControlPlane(t)
	server := startOn(t, "", t.TempDir(), "CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL="+address,
		"XDS_CLIENT_BACKOFF_INITIAL_INTERVAL=10ms")
	<-plane.asked
	for _, requests := range []string{"2", "3"} {
		ack := plane.publish("1", resource(t, `name: "a" domain: "d" descriptors { key: "k" rate_limit { unit: DAY requests_per_unit: `+requests+` } }`))
		if ack.GetVersionInfo() != "1" || ack.GetErrorDetail() != nil {
			t.Errorf("%v", ack)
		}
		if n := server.service.Config().Limits()[0].RequestsPerUnit(); strconv.FormatInt(n, 10) != requests {
			t.Errorf("the limit in force is %d, want %s", n, requests)
		}
		plane.send <- nil // the stream breaks
		if again := <-plane.asked; again.GetVersionInfo() == "1" {
			t.Fatal("the first request of a stream tells the version of another")
		}
	}
}

// The configuration in force is not read again when a new stream begins with it. It is acknowledged all the same, and a
// configuration that was refused before it is forgotten.
func TestControlPlaneThatSendsWhatIsInForce(t *testing.T) {
	plane, address := startControlPlane(t)
	server := startOn(t, "", t.TempDir(), "CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL="+address,
		"XDS_CLIENT_BACKOFF_INITIAL_INTERVAL=10ms")
	good := resource(t, `name: "a" domain: "d" descriptors { key: "k" rate_limit { unit: DAY requests_per_unit: 2 } }`)
	<-plane.asked
	plane.publish("1", good)
	config := server.service.Config()
	if nack := plane.publish("2", resource(t, `name: "a" domain: "d" descriptors { key: "k" rate_limit { requests_per_unit: 2 } }`)); nack.GetErrorDetail() == nil {
		t.Errorf("%v", nack)
	}
	plane.send <- nil // the stream breaks
	<-plane.asked
	if ack := plane.publish("3", good); ack.GetVersionInfo() != "3" || ack.GetErrorDetail() != nil {
		t.Errorf("%v", ack)
	}
	if server.service.Config() != config {
		t.Error("the configuration was read again")
	}
	if n := server.stats.ConfigLoadSuccess.Load(); n != 2 {
		t.Errorf("%d configurations count as loaded, want 2", n)
	}
	server.loading.Lock()
	defer server.loading.Unlock()
	if server.refused != nil {
		t.Error("the refused configuration is kept")
	}
}

// Until a first configuration has been received or read, all requests get errors. The service is not healthy then, so
// that none are sent, not even by clients that ask over gRPC for the health of the whole server, as Kubernetes does.
// (envoyproxy/ratelimit does not even listen.) A configuration that is refused also ends that
// state, as in envoyproxy/ratelimit.
func TestHealthBeforeTheFirstConfiguration(t *testing.T) {
	plane, address := startControlPlane(t)
	healthy := func(server *Server) bool {
		code, _ := get(t, server, "http", "/healthcheck")
		return code == http.StatusOK
	}
	whole := func(server *Server) bool {
		t.Helper()
		connection, err := grpc.NewClient(server.Addr("grpc").String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		must(t, err)
		defer connection.Close()
		answer, err := healthv1.NewHealthClient(connection).Check(t.Context(), &healthv1.HealthCheckRequest{})
		must(t, err)
		return answer.GetStatus() == healthv1.HealthCheckResponse_SERVING
	}
	overXDS := []string{"CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL=" + address}
	redis := redistest.Shared(t).Addr()
	server := startOn(t, redis, t.TempDir(), overXDS...)
	<-plane.asked
	if healthy(server) || whole(server) {
		t.Error("healthy before the control plane has sent anything")
	}
	plane.publish("1", &anypb.Any{TypeUrl: "type.googleapis.com/other"})
	if healthy(server) || whole(server) {
		t.Error("healthy when the control plane has sent something else")
	}
	plane.publish("2", resource(t, `name: "a" domain: "d" descriptors { key: "k" rate_limit { requests_per_unit: 2 } }`))
	if !healthy(server) || !whole(server) {
		t.Error("not healthy when a configuration has been refused")
	}
	server.Close()
	server = startOn(t, redis, t.TempDir(), append(overXDS, "FORCE_START_WITHOUT_INITIAL_CONFIG=true")...)
	if !healthy(server) || !whole(server) {
		t.Error("not healthy, but should start without a configuration")
	}

	root := t.TempDir()
	server = startOn(t, redis, root)
	if healthy(server) || whole(server) {
		t.Error("healthy without a directory of configuration files")
	}
	must(t, os.Mkdir(filepath.Join(root, "config"), 0o700))
	redistest.Eventually(t, "healthy", func() bool { return healthy(server) && whole(server) })
}

// A gRPC server with default settings, such as many control planes are, ends a connection whose pings come sooner
// than every five minutes. With shorter intervals, connections ended after three minutes and were away for ten
// seconds.
func TestPingsToTheControlPlane(t *testing.T) {
	if pingEvery <= 5*time.Minute {
		t.Errorf("every %v", pingEvery)
	}
}

// An absent control plane is tried again as often as the settings say, for as long as it is absent. Until it has sent a
// configuration, it is tried every 2 s at least: by default, the second attempt would come after 5 s or later.
func TestControlPlaneThatIsAway(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		attempts int // in less than 10 s; gRPC by itself makes six
		settings []string
	}{
		{12, []string{"XDS_CLIENT_BACKOFF_INITIAL_INTERVAL=10ms", "XDS_CLIENT_BACKOFF_MAX_INTERVAL=50ms"}},
		{4, nil},
	} {
		t.Run(fmt.Sprint(test.attempts), func(t *testing.T) {
			t.Parallel()
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			must(t, err)
			defer listener.Close()
			startOn(t, "", t.TempDir(), append(test.settings, "CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL="+listener.Addr().String())...)
			must(t, listener.(*net.TCPListener).SetDeadline(time.Now().Add(10*time.Second)))
			for n := range test.attempts {
				connection, err := listener.Accept()
				if err != nil {
					t.Fatalf("%d attempts: %v", n, err)
				}
				must(t, connection.Close())
			}
		})
	}
}

// Over TLS, the control plane must show a certificate for its name from a known authority. The service shows its own
// certificate.
func TestXDSOverTLS(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	known, unknown := newAuthority(t), newAuthority(t)
	known.issue(t, file("plane"), "plane.test", 1)
	known.issue(t, file("client"), "client.test", 2)
	must(t, os.WriteFile(file("ca"), known.pem, 0o600))
	must(t, os.WriteFile(file("other-ca"), unknown.pem, 0o600))
	pair, err := tls.LoadX509KeyPair(file("plane.crt"), file("plane.key"))
	must(t, err)
	clients := x509.NewCertPool()
	clients.AddCert(known.certificate)
	plane, address := startControlPlane(t, grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{pair}, ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert,
	})))
	settings := func(ca, name, certificate string) []string {
		all := []string{"CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL=" + address, "CONFIG_GRPC_XDS_SERVER_USE_TLS=true",
			"CONFIG_GRPC_XDS_SERVER_TLS_CACERT=" + file(ca), "CONFIG_GRPC_XDS_SERVER_TLS_SAN=" + name}
		if certificate != "" {
			all = append(all, "CONFIG_GRPC_XDS_CLIENT_TLS_CERT="+file(certificate+".crt"), "CONFIG_GRPC_XDS_CLIENT_TLS_KEY="+file(certificate+".key"))
		}
		return all
	}
	for why, bad := range map[string][]string{
		"another authority": settings("other-ca", "plane.test", "client"),
		"another name":      settings("ca", "other.test", "client"),
		"no certificate":    settings("ca", "plane.test", ""),
	} {
		s, _, err := FromEnvironment(bad)
		must(t, err)
		connection, err := s.XDS.dial()
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(connection).StreamAggregatedResources(ctx)
		if err == nil {
			_, err = stream.Recv()
		}
		if status.Code(err) != codes.Unavailable {
			t.Errorf("%s: %v, want Unavailable", why, err)
		}
		must(t, connection.Close())
	}
	server := startOn(t, redistest.Shared(t).Addr(), t.TempDir(), append(settings("ca", "plane.test", "client"), "CACHE_KEY_PREFIX="+redistest.Prefix())...)
	select {
	case <-plane.asked:
	case <-time.After(30 * time.Second):
		t.Fatal("the control plane has not been asked")
	}
	if ack := plane.publish("1", resource(t, `name: "a" domain: "d" descriptors { key: "k" rate_limit { unit: YEAR requests_per_unit: 3 } }`)); ack.GetErrorDetail() != nil {
		t.Fatal(ack)
	}
	expect(t, server.client(t), asking("d k=v"), "OK: OK 2")
}

// An overlay sets what a control plane's messages have no fields for. It applies to each configuration that is sent,
// and is read again when it changes. An overlay with a mistake changes nothing.
func TestOverlayOverXDS(t *testing.T) {
	plane, address := startControlPlane(t)
	path := filepath.Join(t.TempDir(), "overlay.yaml")
	write := func(text string) { must(t, os.WriteFile(path, []byte(text), 0o600)) }
	const sliding = `limits: [{match: "d.*", algorithm: sliding-log}]`
	write(sliding)
	server := startOn(t, redistest.Shared(t).Addr(), t.TempDir(), "CACHE_KEY_PREFIX="+redistest.Prefix(),
		"CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL="+address, "TIERLIMIT_OVERLAY="+path)
	client := server.client(t)
	loaded := func(n uint64) func() bool {
		return func() bool { return server.stats.ConfigLoadSuccess.Load() == n }
	}
	refused := func(n uint64) func() bool {
		return func() bool { return server.stats.ConfigLoadError.Load() == n }
	}
	<-plane.asked
	three := func(key string) *anypb.Any {
		return resource(t, `name: "a" domain: "d" descriptors { key: "`+key+`" rate_limit { unit: YEAR requests_per_unit: 3 } }`)
	}
	// two asks for two hits. Under an algorithm, they are charged only if they are granted, so that one hit may still
	// be granted after a denial.
	two := func(key string) *ratelimitv3.RateLimitRequest {
		request := asking("d " + key)
		request.HitsAddend = 2
		return request
	}
	if ack := plane.publish("1", three("k")); ack.GetErrorDetail() != nil {
		t.Fatal(ack)
	}
	expect(t, client, two("k=a"), "OK: OK 1")
	expect(t, client, two("k=a"), "OVER: OVER 0")
	expect(t, client, asking("d k=a"), "OK: OK 0") // denied hits have cost nothing

	plane.publish("2", three("l"))
	expect(t, client, two("l=a"), "OK: OK 1")
	expect(t, client, two("l=a"), "OVER: OVER 0")
	expect(t, client, asking("d l=a"), "OK: OK 0")

	write(`limits: [{match: "d.*", outage: deny}]`)
	redistest.Eventually(t, "the overlay without an algorithm is in force", loaded(3))
	expect(t, client, two("l=b"), "OK: OK 1")
	expect(t, client, two("l=b"), "OVER: OVER 0")
	expect(t, client, asking("d l=b"), "OVER: OVER 0") // denied hits have been counted

	write(`limits: [{match: "d.*", algorithm: nonsense}]`)
	redistest.Eventually(t, "the mistake is found", refused(1))
	write(`limits: [{match: "d.*", unit_multiplier: 2, algorithm: sliding-log}]`)
	redistest.Eventually(t, "two years are refused", refused(2))
	if l := server.service.Config().Limits()[0]; l.Terms.Counted || l.Terms.Outage != tiered.Deny {
		t.Errorf("in force: %+v", l.Terms)
	}
	// The overlay is tried again with the next configuration, and fits that one.
	plane.publish("3", resource(t, `name: "a" domain: "d" descriptors { key: "l" rate_limit { unit: MONTH requests_per_unit: 3 } }`))
	redistest.Eventually(t, "the overlay fits", loaded(5))
	if l := server.service.Config().Limits()[0]; !l.Terms.Counted || l.Window != 60*24*time.Hour {
		t.Errorf("in force: %v %+v", l.Window, l.Terms)
	}
	must(t, os.Remove(path))
	redistest.Eventually(t, "the file is missed", refused(3))
	plane.publish("4", three("m"))
	redistest.Eventually(t, "what does not fit is refused", refused(4))
	write(sliding)
	redistest.Eventually(t, "what was refused is in force with the next overlay", loaded(6))
	expect(t, client, two("m=a"), "OK: OK 1")
}

// If a configuration that was refused because of the overlay does not fit the next overlay either, it is refused for
// what is wrong with that one, in the log and to the control plane. An overlay that comes before the first configuration
// is kept for it.
func TestOverlayThatDoesNotFitEither(t *testing.T) {
	plane, address := startControlPlane(t)
	path := filepath.Join(t.TempDir(), "overlay.yaml")
	write := func(hours int) {
		must(t, os.WriteFile(path, fmt.Appendf(nil, `limits: [{match: "d.*", window: %dh}]`, hours), 0o600))
	}
	write(9000)
	s, _, err := FromEnvironment([]string{"CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL=" + address, "TIERLIMIT_OVERLAY=" + path,
		"HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1", "PORT=0", "GRPC_PORT=0", "DEBUG_PORT=0", "USE_PROMETHEUS=false", "USE_STATSD=false"})
	must(t, err)
	s.LookEvery = 10 * time.Millisecond
	var log strings.Builder
	server, err := Start(t.Context(), s, slog.New(slog.NewTextHandler(&log, nil)))
	must(t, err)
	defer server.Close()
	<-plane.asked
	year := resource(t, `name: "a" domain: "d" descriptors { key: "k" rate_limit { unit: YEAR requests_per_unit: 3 } }`)
	if nack := plane.publish("1", year); !strings.Contains(nack.GetErrorDetail().GetMessage(), "9000h") {
		t.Error(nack)
	}
	write(9001)
	redistest.Eventually(t, "9001 hours are refused", func() bool { return server.stats.ConfigLoadError.Load() == 2 })
	if nack := plane.publish("1", year); !strings.Contains(nack.GetErrorDetail().GetMessage(), "9001h") {
		t.Error(nack)
	}
	other := resource(t, `name: "a" domain: "d" descriptors { key: "l" rate_limit { unit: YEAR requests_per_unit: 3 } }`)
	if nack := plane.publish("1", other); !strings.Contains(nack.GetErrorDetail().GetMessage(), "9001h") {
		t.Error(nack)
	}
	if server.service.Config() != nil {
		t.Error("a configuration is in force")
	}
	write(1)
	redistest.Eventually(t, "one hour is in force", func() bool { return server.stats.ConfigLoadSuccess.Load() == 1 })
	if ack := plane.publish("1", other); ack.GetErrorDetail() != nil {
		t.Error(ack)
	}
	server.Close()
	if text := "with the new overlay either"; strings.Count(log.String(), text) != 1 {
		t.Errorf("not %q once in %s", text, log.String())
	}
}

// A service does not start with an overlay that it cannot read.
func TestOverlayAtStart(t *testing.T) {
	for name, text := range map[string]string{"missing": "", "broken": "limits: 5"} {
		path := filepath.Join(t.TempDir(), "overlay.yaml")
		if text != "" {
			must(t, os.WriteFile(path, []byte(text), 0o600))
		}
		s, _, err := FromEnvironment([]string{"TIERLIMIT_OVERLAY=" + path, "GRPC_HOST=127.0.0.1", "GRPC_PORT=0"})
		must(t, err)
		if _, err := Start(t.Context(), s, slog.New(slog.DiscardHandler)); !errors.Is(err, ErrInvalidSetting) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
