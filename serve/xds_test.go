package serve

import (
	"net"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/serve/internal/xdsconfig"
)

// controlPlane sends configurations, and is told what became of them.
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

// A control plane's configuration is put in force and acknowledged; one with a mistake is
// refused, with its cause, and changes nothing; a stream that breaks is begun anew.
func TestXDS(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	plane := &controlPlane{send: make(chan *discoveryv3.DiscoveryResponse), asked: make(chan *discoveryv3.DiscoveryRequest), token: make(chan []string, 9)}
	control := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(control, plane)
	go func() { _ = control.Serve(listener) }()
	t.Cleanup(control.Stop)
	t.Cleanup(func() { close(plane.send) })

	server := startOn(t, redistest.Shared(t).Addr(), t.TempDir(), "CACHE_KEY_PREFIX="+redistest.Prefix(),
		"CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL="+listener.Addr().String(), "CONFIG_GRPC_XDS_NODE_ID=me",
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
	send := func(version string, resources ...*anypb.Any) *discoveryv3.DiscoveryRequest {
		plane.send <- &discoveryv3.DiscoveryResponse{VersionInfo: version, Nonce: "n" + version, TypeUrl: xdsconfig.TypeURL, Resources: resources}
		return <-plane.asked
	}
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
	if again.GetVersionInfo() != "1" || again.GetNode().GetId() != "me" {
		t.Errorf("%v", again)
	}
	expect(t, client, asking("e k=v"), "OK: OK 4")
	if ack := send("4"); ack.GetVersionInfo() != "4" || ack.GetErrorDetail() != nil {
		t.Errorf("%v", ack)
	}
	expect(t, client, asking("e k=v"), "OK: OK")
}
