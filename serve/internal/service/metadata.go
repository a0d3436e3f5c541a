package service

import (
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// dynamicMetadata returns the request, and the metadata of the limits that allowed it.
func dynamicMetadata(request *ratelimitv3.RateLimitRequest, statuses []*ratelimitv3.RateLimitResponse_DescriptorStatus, all []asked) *structpb.Struct {
	descriptors := &structpb.ListValue{}
	for _, d := range request.GetDescriptors() {
		entries := &structpb.ListValue{}
		for _, e := range d.GetEntries() {
			entries.Values = append(entries.Values, structpb.NewStringValue(e.GetKey()+"="+e.GetValue()))
		}
		fields := map[string]*structpb.Value{"entries": structpb.NewListValue(entries)}
		if d.GetLimit() != nil {
			fields["limit"] = structpb.NewStringValue(d.GetLimit().String())
		}
		if d.GetHitsAddend() != nil {
			fields["hitsAddend"] = structpb.NewNumberValue(float64(d.GetHitsAddend().GetValue()))
		}
		descriptors.Values = append(descriptors.Values, structpb.NewStructValue(&structpb.Struct{Fields: fields}))
	}
	fields := map[string]*structpb.Value{
		"domain":      structpb.NewStringValue(request.GetDomain()),
		"descriptors": structpb.NewListValue(descriptors),
	}
	if hits := request.GetHitsAddend(); hits != 0 {
		fields["hitsAddend"] = structpb.NewNumberValue(float64(hits))
	}
	passed := &structpb.Struct{Fields: make(map[string]*structpb.Value)}
	for i := range all {
		if l := all[i].limit; l != nil && statuses[i].GetCode() == ratelimitv3.RateLimitResponse_OK {
			merge(passed, l.Metadata)
		}
	}
	if len(passed.Fields) > 0 {
		fields["metadata"] = structpb.NewStructValue(passed)
	}
	return &structpb.Struct{Fields: fields}
}

// merge adds fields that are missing, and merges structures field by field. It copies structures from the
// configuration, because later fields may be added to them.
func merge(to, from *structpb.Struct) {
	for name, value := range from.GetFields() {
		known, ok := to.Fields[name]
		switch inner := value.GetStructValue(); {
		case !ok && inner != nil:
			own := &structpb.Struct{Fields: make(map[string]*structpb.Value)}
			merge(own, inner)
			to.Fields[name] = structpb.NewStructValue(own)
		case !ok:
			to.Fields[name] = value
		case known.GetStructValue() != nil && inner != nil:
			merge(known.GetStructValue(), inner)
		}
	}
}
