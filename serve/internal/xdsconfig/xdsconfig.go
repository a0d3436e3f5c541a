// Package xdsconfig reads configurations in the form in which control planes such as Envoy Gateway send them over
// xDS: resources of type ratelimit.config.ratelimit.v3.RateLimitConfig.
package xdsconfig

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/anypb"
	_ "google.golang.org/protobuf/types/known/structpb" // the type of metadata

	"github.com/tierlimit/tierlimit/serve/internal/config"
)

// TypeURL is the type of the resources.
const TypeURL = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"

// described declares the messages and their fields. Written as JSON, the fields have the same names as in
// configuration files.
const described = `
name: "tierlimit/serve/rls_conf.proto"
package: "ratelimit.config.ratelimit.v3"
syntax: "proto3"
dependency: "google/protobuf/struct.proto"
message_type {
  name: "RateLimitConfig"
  field { name: "name" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
  field { name: "domain" number: 2 label: LABEL_OPTIONAL type: TYPE_STRING }
  field { name: "descriptors" number: 3 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: ".ratelimit.config.ratelimit.v3.RateLimitDescriptor" }
}
message_type {
  name: "RateLimitDescriptor"
  field { name: "key" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
  field { name: "value" number: 2 label: LABEL_OPTIONAL type: TYPE_STRING }
  field { name: "rate_limit" number: 3 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".ratelimit.config.ratelimit.v3.RateLimitPolicy" }
  field { name: "descriptors" number: 4 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: ".ratelimit.config.ratelimit.v3.RateLimitDescriptor" }
  field { name: "shadow_mode" number: 5 label: LABEL_OPTIONAL type: TYPE_BOOL }
  field { name: "detailed_metric" number: 6 label: LABEL_OPTIONAL type: TYPE_BOOL }
  field { name: "quota_mode" number: 7 label: LABEL_OPTIONAL type: TYPE_BOOL }
  field { name: "metadata" number: 8 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".google.protobuf.Struct" }
}
message_type {
  name: "RateLimitPolicy"
  field { name: "unit" number: 1 label: LABEL_OPTIONAL type: TYPE_ENUM type_name: ".ratelimit.config.ratelimit.v3.RateLimitUnit" }
  field { name: "requests_per_unit" number: 2 label: LABEL_OPTIONAL type: TYPE_UINT32 }
  field { name: "unlimited" number: 3 label: LABEL_OPTIONAL type: TYPE_BOOL }
  field { name: "name" number: 4 label: LABEL_OPTIONAL type: TYPE_STRING }
  field { name: "replaces" number: 5 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: ".ratelimit.config.ratelimit.v3.RateLimitReplace" }
}
message_type {
  name: "RateLimitReplace"
  field { name: "name" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
}
enum_type {
  name: "RateLimitUnit"
  value { name: "UNKNOWN" number: 0 }
  value { name: "SECOND" number: 1 }
  value { name: "MINUTE" number: 2 }
  value { name: "HOUR" number: 3 }
  value { name: "DAY" number: 4 }
  value { name: "MONTH" number: 5 }
  value { name: "YEAR" number: 6 }
  value { name: "WEEK" number: 7 }
}
`

// Message describes the resources' message. It is not registered, because another package of the process may register
// its own.
var Message = func() protoreflect.MessageDescriptor {
	var file descriptorpb.FileDescriptorProto
	if err := prototext.Unmarshal([]byte(described), &file); err != nil {
		panic(err) // the text is a constant, and tests read it
	}
	descriptor, err := protodesc.NewFile(&file, protoregistry.GlobalFiles)
	if err != nil {
		panic(err)
	}
	return descriptor.Messages().ByName("RateLimitConfig")
}()

// Files returns the resources as files that [config.Load] reads.
func Files(resources []*anypb.Any) ([]config.File, error) {
	files := make([]config.File, 0, len(resources))
	for i, resource := range resources {
		if resource.GetTypeUrl() != TypeURL {
			return nil, fmt.Errorf("%w: resource %d is of type %q, must be %s", config.ErrInvalid, i, resource.GetTypeUrl(), TypeURL)
		}
		m := dynamicpb.NewMessage(Message)
		if err := proto.Unmarshal(resource.GetValue(), m); err != nil {
			return nil, fmt.Errorf("%w: resource %d: %w", config.ErrInvalid, i, err)
		}
		name := Message.Fields().ByName("name")
		named := fmt.Sprintf("resource %q", m.Get(name).String())
		m.Clear(name)
		text, err := protojson.MarshalOptions{UseProtoNames: true, Resolver: protoregistry.GlobalTypes}.Marshal(m)
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %w", config.ErrInvalid, named, err)
		}
		var lines any // one field a line, so that errors have useful line numbers
		if err := json.Unmarshal(text, &lines); err == nil {
			if indented, err := json.MarshalIndent(lines, "", " "); err == nil {
				text = indented
			}
		}
		files = append(files, config.File{Name: named, Text: escape(text)})
	}
	return files, nil
}

// escape escapes the characters that JSON allows unescaped and YAML does not. They occur only in strings.
func escape(json []byte) []byte {
	escaped := make([]byte, 0, len(json))
	for _, r := range string(json) {
		if r >= 0x7f && r <= 0x9f || r == 0xfffe || r == 0xffff {
			escaped = fmt.Appendf(escaped, `\u%04x`, r)
		} else {
			escaped = utf8.AppendRune(escaped, r)
		}
	}
	return escaped
}
