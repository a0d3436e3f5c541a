package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/tierlimit/tierlimit/serve/internal/xdsconfig"
)

// XDSSettings configure the control plane that sends the configuration if it does not come from files.
type XDSSettings struct {
	Server, NodeID          string
	NodeMetadata, Headers   map[string]string
	UseTLS                  bool
	Certificate, Key        string // paths, "": none
	ServerCA, ServerName    string
	RetryAfter, RetryAtMost time.Duration
	LongestMessage          int // bytes, 0: gRPC's own
}

func (e *environment) xds() XDSSettings {
	const headers = "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS"
	for name := range e.pairs(headers, ":") {
		if !isHeader(name, "-_.") {
			e.fail("%s has the name %q, which may only have letters, digits, -, _ and .", headers, name)
		}
	}
	server := e.text("CONFIG_GRPC_XDS_SERVER_URL", "localhost:18000")
	if strings.HasPrefix(server, "http://") || strings.HasPrefix(server, "https://") {
		e.fail("CONFIG_GRPC_XDS_SERVER_URL is %q, must be like localhost:18000", server)
	}
	return XDSSettings{
		Server:       server,
		NodeID:       e.text("CONFIG_GRPC_XDS_NODE_ID", "default"),
		NodeMetadata: e.nodeMetadata(),
		Headers:      e.pairs(headers, ":"),
		UseTLS:       e.truth("CONFIG_GRPC_XDS_SERVER_USE_TLS", false),
		Certificate:  e.text("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", ""), Key: e.text("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", ""),
		ServerCA: e.text("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", ""), ServerName: e.text("CONFIG_GRPC_XDS_SERVER_TLS_SAN", ""),
		RetryAfter: e.retry("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", 10*time.Second), RetryAtMost: e.retry("XDS_CLIENT_BACKOFF_MAX_INTERVAL", time.Minute),
		LongestMessage: e.longestMessage(),
	}
}

// pairs reads a comma-separated list of names and values. Errors leave out the text, which may hold a token.
func (e *environment) pairs(name, between string) map[string]string {
	pairs := make(map[string]string)
	if strings.TrimSpace(e.values[name]) == "" {
		return pairs
	}
	for i, part := range strings.Split(e.values[name], ",") {
		if key, value, ok := strings.Cut(part, between); ok {
			pairs[key] = value
		} else if part != "" {
			e.fail("%s has no %q in its part %d, must be like name%svalue,name%svalue", name, between, i+1, between, between)
		}
	}
	return pairs
}

const nodeMetadata = "CONFIG_GRPC_XDS_NODE_METADATA"

// nodeMetadata reads the metadata of the node. Parts without a "=" are left out, as envoyproxy/ratelimit does, because a
// service that starts there has to start here; meaningless warns of them.
func (e *environment) nodeMetadata() map[string]string {
	metadata := make(map[string]string)
	for _, part := range strings.Split(e.values[nodeMetadata], ",") {
		if name, value, ok := strings.Cut(part, "="); ok {
			metadata[name] = value
		}
	}
	return metadata
}

// firstRetry is the longest wait between attempts until a configuration has come. Until then, the service limits nothing.
const firstRetry = 2 * time.Second

// shortestRetry is the shortest wait between attempts, so that an absent control plane is not asked in a tight loop.
const shortestRetry = 10 * time.Millisecond

// retry reads the wait between two attempts. Like envoyproxy/ratelimit, it accepts a negative time.
func (e *environment) retry(name string, otherwise time.Duration) time.Duration {
	return e.atLeast(name, e.signedDuration(name, otherwise), shortestRetry)
}

// longestMessage reads how long a message of the control plane may be. Like envoyproxy/ratelimit, it accepts any number.
func (e *environment) longestMessage() int {
	const name = "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES"
	value := e.number(name, 0, math.MinInt, math.MaxInt)
	if value < 0 {
		e.warn("%s is %d, which is no size: the default is used", name, value)
	}
	return max(value, 0)
}

// pingEvery is how often the client pings a control plane that sends nothing. By default, a gRPC server ends
// connections whose pings come more often than every five minutes, and Envoy Gateway keeps that default.
const pingEvery = 5*time.Minute + 30*time.Second

// dial returns a connection to the control plane. It connects when it is first used.
func (x *XDSSettings) dial() (*grpc.ClientConn, error) {
	options := []grpc.DialOption{
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingEvery, Timeout: 20 * time.Second}),
	}
	if x.LongestMessage > 0 {
		options = append(options, grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(x.LongestMessage)))
	}
	if !x.UseTLS {
		return x.connect(append(options, grpc.WithTransportCredentials(insecure.NewCredentials())))
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: x.ServerName}
	if x.ServerCA != "" {
		pool, err := readCertificates("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", x.ServerCA)
		if err != nil {
			return nil, err
		}
		c.RootCAs = pool
	}
	if x.Certificate != "" && x.Key != "" {
		own, err := clientCertificate("CONFIG_GRPC_XDS_CLIENT_TLS_CERT and CONFIG_GRPC_XDS_CLIENT_TLS_KEY", x.Certificate, x.Key)
		if err != nil {
			return nil, err
		}
		c.GetClientCertificate = own
	}
	return x.connect(append(options, grpc.WithTransportCredentials(credentials.NewTLS(c))))
}

func (x *XDSSettings) connect(options []grpc.DialOption) (*grpc.ClientConn, error) {
	connection, err := grpc.NewClient(x.Server, options...)
	if err != nil {
		return nil, fmt.Errorf("%w: CONFIG_GRPC_XDS_SERVER_URL is %q, must be like localhost:18000: %w", ErrInvalidSetting, x.Server, err)
	}
	return connection, nil
}

// subscription receives the configuration from a control plane over its aggregated stream, in the state-of-the-world
// form of xDS.
type subscription struct {
	server    *Server
	version   string    // of the configuration in force
	refusal   error     // why the last configuration was refused, nil if it is in force
	refusedAt time.Time // when the last refusal was sent to the control plane
	logged    string    // the last refusal that was logged
}

// run receives configurations until ctx ends. When the stream breaks, it opens another.
func (s *subscription) run(ctx context.Context) {
	x := &s.server.settings.XDS
	wait := x.RetryAfter
	for {
		received, err := s.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		s.server.log.Warn("no connection to the control plane (CONFIG_GRPC_XDS_SERVER_URL); the current configuration stays in force", "at", x.Server, "error", err)
		if received {
			wait = x.RetryAfter
		}
		pause := wait
		if s.version == "" && s.refusal == nil {
			pause = min(pause, firstRetry)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause/2 + rand.N(pause/2+1)): // spread out, so that not all instances ask at the same moment
		}
		wait = min(2*wait, x.RetryAtMost)
	}
}

// follow receives configurations from one stream until the stream ends. Each stream has a connection of its own: gRPC
// would wait up to two minutes before it tried again on a connection that it had failed to make, whatever the
// settings say.
func (s *subscription) follow(ctx context.Context) (received bool, err error) {
	x := &s.server.settings.XDS
	connection, err := x.dial()
	if err != nil {
		return false, err
	}
	defer connection.Close()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(connection).StreamAggregatedResources(
		metadata.NewOutgoingContext(ctx, metadata.New(x.Headers)))
	if err != nil {
		return false, err
	}
	fields := make(map[string]*structpb.Value)
	for name, value := range x.NodeMetadata {
		fields[name] = structpb.NewStringValue(value)
	}
	node := &corev3.Node{Id: x.NodeID, Metadata: &structpb.Struct{Fields: fields}}
	// The first request does not have the version in force, so that the control plane sends what it has. Some, such as
	// Envoy Gateway, count versions from 1 again when they restart. Told that version 1 is in force, they would take
	// their own, other version 1 for received.
	if err := stream.Send(&discoveryv3.DiscoveryRequest{Node: node, TypeUrl: xdsconfig.TypeURL}); err != nil {
		return false, err
	}
	for {
		response, err := stream.Recv()
		if err != nil {
			return received, err
		}
		received = true
		answer := &discoveryv3.DiscoveryRequest{Node: node, TypeUrl: xdsconfig.TypeURL, ResponseNonce: response.GetNonce()}
		if err := s.load(response); ctx.Err() != nil {
			return received, ctx.Err()
		} else if err != nil {
			answer.ErrorDetail = &rpcstatus.Status{Code: int32(codes.InvalidArgument), Message: err.Error()}
			if err := s.refuse(ctx, response.GetVersionInfo(), err); err != nil {
				return received, err
			}
		} else {
			s.version, s.refusal, s.logged = response.GetVersionInfo(), nil, ""
		}
		answer.VersionInfo = s.version
		if err := stream.Send(answer); err != nil {
			return received, err
		}
	}
}

// refuse logs a refusal, unless it is the one that was logged last, and waits until it may be sent to the control plane.
// Many control planes, such as Envoy Gateway, answer a refusal at once with the same configuration, because it is not
// the version in force. Without the wait, both sides would be busy with thousands of refusals a second.
func (s *subscription) refuse(ctx context.Context, version string, why error) error {
	s.refusal = why
	if text := version + ": " + why.Error(); s.logged != text {
		s.logged = text
		s.server.log.Error("the control plane's configuration cannot be loaded; the current configuration stays in force", "version", version, "error", why)
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Until(s.refusedAt.Add(s.server.settings.LookEvery))): // at once after the first
	}
	s.refusedAt = time.Now()
	return nil
}

// load puts the resources of a response in force, either all of them or none. What is refused or in force already is
// not read again: each new stream begins with it, and it may be large.
func (s *subscription) load(response *discoveryv3.DiscoveryResponse) error {
	if url := response.GetTypeUrl(); url != xdsconfig.TypeURL {
		s.server.stats.ConfigLoadError.Add(1)
		return errors.New("tierlimit: resources of type " + url + " were not requested")
	}
	files, err := xdsconfig.Files(response.GetResources())
	if err != nil {
		s.server.forgetRefused() // the control plane has sent another since
		s.server.stats.ConfigLoadError.Add(1)
		return err
	}
	if why := s.server.refusalOf(files); why != nil {
		return why
	}
	if s.server.inForceAlready(files) {
		return nil
	}
	return s.server.load(files)
}
