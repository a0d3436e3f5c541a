//go:build original

package serve

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/anypb"
	"gopkg.in/yaml.v3"

	"github.com/tierlimit/tierlimit/serve/internal/xdsconfig"
)

// pairOverXDS is both services, each with a control plane that sends the same as the other's.
type pairOverXDS struct {
	planes       [2]*controlPlane
	theirs, ours ratelimitv3.RateLimitServiceClient
	version      int
	seen         tally
}

func startPairOverXDS(t *testing.T, settings ...string) *pairOverXDS {
	t.Helper()
	theirPlane, theirAddress := startControlPlane(t)
	ourPlane, ourAddress := startControlPlane(t)
	overXDS := func(address string) []string {
		return append([]string{"CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL=" + address,
			"LIMIT_RESPONSE_HEADERS_ENABLED=true", "RESPONSE_DYNAMIC_METADATA=true"}, settings...)
	}
	p := &pairOverXDS{planes: [2]*controlPlane{theirPlane, ourPlane}}
	p.theirs = startOriginal(t, t.TempDir(), overXDS(theirAddress)...)
	p.ours = startOwn(t, t.TempDir(), overXDS(ourAddress)...).client(t)
	want, got := <-theirPlane.asked, <-ourPlane.asked
	if want.GetTypeUrl() != got.GetTypeUrl() || want.GetNode().GetId() != got.GetNode().GetId() {
		t.Errorf("the original begins with %s, ours with %s", protojson.Format(want), protojson.Format(got))
	}
	return p
}

// publish sends a configuration to both services and compares their answers. It reports whether they accept it. It sends
// it twice, because the original acknowledges a configuration just before it puts it in force, and takes the next one
// only after that.
func (p *pairOverXDS) publish(t *testing.T, resources ...*anypb.Any) (accepted bool) {
	t.Helper()
	for range 2 {
		p.version++
		version := fmt.Sprint(p.version)
		want, got := p.planes[0].publish(version, resources...), p.planes[1].publish(version, resources...)
		accepted = got.GetErrorDetail() == nil
		if (want.GetErrorDetail() == nil) != accepted || want.GetVersionInfo() != got.GetVersionInfo() || want.GetResponseNonce() != got.GetResponseNonce() {
			t.Fatalf("the original answers %s, ours %s", protojson.Format(want), protojson.Format(got))
		}
	}
	return accepted
}

func (p *pairOverXDS) compare(t *testing.T, request *ratelimitv3.RateLimitRequest) {
	t.Helper()
	if want, got := compare(t, p.theirs, p.ours, request, &p.seen); want != got {
		t.Fatalf("%s\noriginal: %s\nours:     %s", strings.Join(strings.Fields(protojson.Format(request)), ""), want, got)
	}
}

// With the same random configurations from control planes, both services give the same answers to random requests,
// field by field. Configurations that are refused in between change nothing.
func TestDifferentialXDS(t *testing.T) {
	original(t)
	awaitMiddleOfHour(t)
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Log("seed", seed)
	p, g := startPairOverXDS(t), newGenerator(seed)
	withoutUnit := resource(t, `name: "a" domain: "test" descriptors { key: "ka" rate_limit { requests_per_unit: 2 } }`)
	const rounds = 8
	for range rounds {
		g.paths, g.names = nil, 0
		if !p.publish(t, asResource(t, g.config())) {
			t.Fatal("refused")
		}
		for n := range *requestsFlag / rounds {
			if n == *requestsFlag/rounds/2 && p.publish(t, withoutUnit) {
				t.Fatal("accepted without a unit")
			}
			p.compare(t, g.request())
		}
	}
	t.Logf("%d answers over a limit, %d errors, %d with limits' metadata; of %d descriptors with a limit %d over it",
		p.seen.over, p.seen.errors, p.seen.metadata, p.seen.limited, p.seen.descriptorsOver)
}

// Both services accept and refuse the same unusual configurations, and answer alike with those that they accept.
func TestDifferentialXDSUnusual(t *testing.T) {
	original(t)
	awaitMiddleOfHour(t)
	var requests []*ratelimitv3.RateLimitRequest
	for _, text := range []string{"good k=v", "d k=v", "d k=w", "d k=v,l=w", "d l=v", "d k=", "d k=v k=v", "d k=x*y", "e k=v", "no-domain k=v"} {
		requests = append(requests, asking(text))
	}
	requests[len(requests)-1].Domain = ""
	good := `name: "good" domain: "good" descriptors { key: "k" rate_limit { unit: DAY requests_per_unit: 1000 } }`
	for _, settings := range [][]string{nil, {"MERGE_DOMAIN_CONFIG=true"}} {
		p := startPairOverXDS(t, settings...)
		for _, unusual := range unusualOverXDS {
			if !p.publish(t, resource(t, good)) {
				t.Fatal("the good one is refused")
			}
			var resources []*anypb.Any
			for _, text := range unusual {
				resources = append(resources, resource(t, text))
			}
			accepted := p.publish(t, resources...)
			t.Logf("accepted %v: %q", accepted, unusual)
			for _, request := range requests {
				p.compare(t, request)
			}
		}
		for _, strange := range []*anypb.Any{
			{TypeUrl: xdsconfig.TypeURL, Value: []byte("\xff")},
			{TypeUrl: xdsconfig.TypeURL},
			{TypeUrl: xdsconfig.TypeURL, Value: append(resource(t, good).GetValue(), 0xa2, 0x06, 1, 'x')}, // a field that is not known yet
			{TypeUrl: "type.googleapis.com/other"},
		} {
			t.Logf("accepted %v: %v", p.publish(t, strange), strange)
			p.compare(t, asking("good k=v"))
		}
	}
}

// If patterns of several resources of a domain match a value, the original takes the one that comes first in the
// message. This service takes the one of the resource with the first name, so that all instances agree: many control
// planes send resources in random order.
func TestDifferentialXDSOrder(t *testing.T) {
	original(t)
	p := startPairOverXDS(t, "MERGE_DOMAIN_CONFIG=true")
	a := resource(t, `name: "a" domain: "d" descriptors { key: "k" value: "x*" rate_limit { unit: YEAR requests_per_unit: 5 } }`)
	b := resource(t, `name: "b" domain: "d" descriptors { key: "k" value: "*y" rate_limit { unit: YEAR requests_per_unit: 7 } }`)
	limitOf := func(client ratelimitv3.RateLimitServiceClient) uint32 {
		return ask(t, client, asking("d k=xy")).response.GetStatuses()[0].GetCurrentLimit().GetRequestsPerUnit()
	}
	for _, c := range []struct {
		resources []*anypb.Any
		theirs    uint32
	}{{[]*anypb.Any{a, b}, 5}, {[]*anypb.Any{b, a}, 7}} {
		p.publish(t, c.resources...)
		if theirs, ours := limitOf(p.theirs), limitOf(p.ours); theirs != c.theirs || ours != 5 {
			t.Errorf("the original's limit is %d, want %d; ours is %d, want 5", theirs, c.theirs, ours)
		}
	}
}

var unusualOverXDS = [][]string{
	{},
	{`name: "a" domain: ""`},
	{`name: "" domain: "d"`},
	{`name: "a" domain: "d"`},
	{`name: "a" domain: "d"`, `name: "a" domain: "e" descriptors { key: "k" rate_limit { unit: DAY requests_per_unit: 5 } }`},
	{`name: "a" domain: "d" descriptors { key: "k" value: "v" rate_limit { unit: DAY requests_per_unit: 5 } }`, `name: "b" domain: "d" descriptors { key: "k" value: "w" rate_limit { unit: DAY requests_per_unit: 7 } }`},
	{`name: "a" domain: "d" descriptors { key: "k" value: "v" rate_limit { unit: DAY requests_per_unit: 5 } }`, `name: "b" domain: "d" descriptors { key: "k" value: "v" rate_limit { unit: DAY requests_per_unit: 7 } }`},
	{`name: "a" domain: "d" descriptors { value: "v" }`},
	{`name: "a" domain: "d" descriptors { key: "k" }`},
	{`name: "a" domain: "d" descriptors { key: "k" } descriptors { key: "k" }`},
	{`name: "a" domain: "d" descriptors { key: "k" } descriptors { key: "k" value: "v" rate_limit { unit: DAY } }`},
	{`name: "a" domain: "d" descriptors { key: "k" descriptors { key: "l" rate_limit { unit: DAY requests_per_unit: 3 } } }`},
	{`name: "a" domain: "d" descriptors { key: "k" rate_limit { } }`},
	{`name: "a" domain: "d" descriptors { key: "k" rate_limit { requests_per_unit: 2 } }`},
	{`name: "a" domain: "d" descriptors { key: "k" rate_limit { unit: 9 requests_per_unit: 2 } }`},
	{`name: "a" domain: "d" descriptors { key: "k" rate_limit { unit: WEEK requests_per_unit: 2 } }`},
	{`name: "a" domain: "d" descriptors { key: "k" rate_limit { unit: DAY requests_per_unit: 4294967295 } }`},
	{`name: "a" domain: "d" descriptors { key: "k" rate_limit { unlimited: true } }`},
	{`name: "a" domain: "d" descriptors { key: "k" rate_limit { unlimited: true requests_per_unit: 3 } }`},
	{`name: "a" domain: "d" descriptors { key: "k" rate_limit { unlimited: true unit: DAY } }`},
	{`name: "a" domain: "d" descriptors { key: "k" rate_limit { unlimited: true name: "n" } descriptors { key: "l" rate_limit { unlimited: true replaces { name: "n" } } } }`},
	{`name: "a" domain: "d" descriptors { key: "k" rate_limit { unit: DAY name: "n" replaces { name: "n" } } }`},
	{`name: "a" domain: "d" descriptors { key: "k" rate_limit { unit: DAY replaces { name: "n" } } }`},
	{`name: "a" domain: "d" descriptors { key: "k" rate_limit { unit: DAY replaces { name: "" } } }`},
	{`name: "a" domain: "d" descriptors { key: "k" rate_limit { unit: DAY requests_per_unit: 5 name: "n" } } descriptors { key: "l" rate_limit { unit: DAY requests_per_unit: 6 name: "n" } }`},
	{`name: "a" domain: "d" descriptors { key: "k" value: "*" rate_limit { unit: DAY requests_per_unit: 5 } }`},
	{`name: "a" domain: "d" descriptors { key: "k" value: "x*y" rate_limit { unit: DAY requests_per_unit: 5 } }`},
	{`name: "a" domain: "d" descriptors { key: "k*" value: "v" rate_limit { unit: DAY requests_per_unit: 5 } }`},
	{`name: "a" domain: "d" descriptors { key: "k" shadow_mode: true quota_mode: true rate_limit { unit: DAY requests_per_unit: 1 } }`},
	{`name: "a" domain: "d" descriptors { key: "k" detailed_metric: true rate_limit { unit: DAY requests_per_unit: 5 } }`},
	{`name: "a" domain: "d" descriptors { key: "k" rate_limit { unit: DAY requests_per_unit: 5 } metadata { fields { key: "m" value { null_value: NULL_VALUE } } fields { key: "" value { list_value { values { number_value: 1e300 } values { struct_value { } } values { bool_value: false } } } } } }`},
	{`name: "a" domain: "d" descriptors { key: "k" metadata { fields { key: "m" value { string_value: "without a limit" } } } }`},
	{`name: "a" domain: "d" descriptors { key: "k" value: ": {a}\n- # \"\\\t" rate_limit { unit: DAY requests_per_unit: 5 name: "<<: *x" } }`},
	{`name: "a" domain: " d\n" descriptors { key: " k" rate_limit { unit: DAY requests_per_unit: 5 } }`},
}

// asResource returns a configuration file's text as a control plane sends it, without the fields that only files have.
func asResource(t *testing.T, text string) *anypb.Any {
	t.Helper()
	var fields map[string]any
	must(t, yaml.Unmarshal([]byte(text), &fields))
	toMessage(fields)
	fields["name"] = fields["domain"]
	form, err := json.Marshal(fields)
	must(t, err)
	m := dynamicpb.NewMessage(xdsconfig.Message)
	must(t, protojson.Unmarshal(form, m))
	value, err := proto.Marshal(m)
	must(t, err)
	return &anypb.Any{TypeUrl: xdsconfig.TypeURL, Value: value}
}

// toMessage removes the fields that messages lack, and writes units as messages name them.
func toMessage(fields map[string]any) {
	delete(fields, "share_threshold")
	delete(fields, "value_to_metric")
	if limit, ok := fields["rate_limit"].(map[string]any); ok && limit["unit"] != nil {
		limit["unit"] = strings.ToUpper(limit["unit"].(string))
	}
	descriptors, _ := fields["descriptors"].([]any)
	for _, d := range descriptors {
		toMessage(d.(map[string]any))
	}
}
