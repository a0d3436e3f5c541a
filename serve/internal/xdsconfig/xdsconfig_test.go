package xdsconfig

import (
	"encoding/json"
	"strings"
	"testing"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/tierlimit/tierlimit/serve/internal/config"
)

// Any text that a message can hold stays the same text in the configuration, including text that YAML forbids or
// reads as another type.
func TestAnyText(t *testing.T) {
	for _, text := range []string{
		"v", "a\nb", "\x00", "\x01", "\t", "\x7f", "\u0080", "\u0085", "\u009f", "\u00a0", "\u2028", "\ue000", "\ufeff", "\ufffe", "\uffff", "😀", "\U0010ffff",
		"2022-11-28", "yes", "1.5", "~", "null", "<<", "&a", "*", `"'\`, `\u0085`, "a: b # c", "!!int", "=", strings.Repeat("x", 1000),
	} {
		quoted, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		m := dynamicpb.NewMessage(Message)
		if err := protojson.Unmarshal([]byte(strings.ReplaceAll(`{"name": "n", "domain": "d", "descriptors": [
			{"key": "k", "value": TEXT, "rate_limit": {"unit": "DAY", "requests_per_unit": 5, "name": TEXT}, "metadata": {TEXT: TEXT}}]}`, "TEXT", string(quoted))), m); err != nil {
			t.Fatal(err)
		}
		value, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		files, err := Files([]*anypb.Any{{TypeUrl: TypeURL, Value: value}})
		if err != nil {
			t.Errorf("%.20q: %v", text, err)
			continue
		}
		c, err := config.Load(t.Context(), files, false, nil)
		if err != nil {
			t.Errorf("%.20q: %v", text, err)
			continue
		}
		l := c.Match("d", []*commonv3.RateLimitDescriptor_Entry{{Key: "k", Value: text}}).Limit
		if l == nil || l.Name != text || l.Metadata.GetFields()[text].GetStringValue() != text {
			t.Errorf("%.20q: %+v", text, l)
		}
	}
}
