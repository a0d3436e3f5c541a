//go:build envoy

package serve

import (
	"encoding/json"
	"os"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"gopkg.in/yaml.v3"
)

// The example's Envoy configuration is valid: it parses as Envoy's own messages, without unknown fields or types, and
// passes their validation. (The test takes a minute to compile, so CI only vets it. To run it: go -C serve test -tags
// envoy -run TestEnvoyConfiguration .)
func TestEnvoyConfiguration(t *testing.T) {
	text, err := os.ReadFile("../examples/envoy/envoy.yaml")
	must(t, err)
	var tree any
	must(t, yaml.Unmarshal(text, &tree))
	asJSON, err := json.Marshal(tree)
	must(t, err)
	var bootstrap bootstrapv3.Bootstrap
	must(t, protojson.Unmarshal(asJSON, &bootstrap))
	must(t, bootstrap.ValidateAll())
	inside := 0
	must(t, protorange.Range(bootstrap.ProtoReflect(), func(p protopath.Values) error {
		message, ok := p.Index(-1).Value.Interface().(protoreflect.Message)
		if !ok {
			return nil
		}
		packed, ok := message.Interface().(*anypb.Any)
		if !ok {
			return nil
		}
		inner, err := packed.UnmarshalNew()
		must(t, err)
		inside++
		return validate(inner)
	}))
	if inside < 2 {
		t.Errorf("%d messages in others", inside)
	}
}

func validate(m proto.Message) error {
	if v, ok := m.(interface{ ValidateAll() error }); ok {
		return v.ValidateAll()
	}
	return nil
}
