package service

import (
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/tierlimit/tierlimit/serve/internal/config"
)

// The time for a request with as many descriptors as fit into a message, each with a limit that replaces others, does
// not grow with the square of their number.
func TestManyLimitsThatReplace(t *testing.T) {
	const many = 400_000
	base, better := &config.Limit{Name: "base"}, &config.Limit{Replaces: []string{"base", "other"}}
	all := make([]asked, many)
	for i := range all {
		all[i].limit = better
	}
	all[7].limit = base
	began := time.Now()
	replace(all)
	if took := time.Since(began); took > 20*time.Second { // it takes milliseconds; comparing pairs takes minutes
		t.Errorf("it took %v", took)
	}
	if all[7].limit != nil || all[0].limit != better {
		t.Errorf("%+v, %+v", all[7], all[0])
	}
}

// The statistics of a descriptor with its own limit have envoyproxy/ratelimit's names, even without entries.
func TestNameOf(t *testing.T) {
	entry := func(key, value string) *commonv3.RateLimitDescriptor_Entry {
		return &commonv3.RateLimitDescriptor_Entry{Key: key, Value: value}
	}
	for want, entries := range map[string][]*commonv3.RateLimitDescriptor_Entry{
		"d.":       nil,
		"d.k_v":    {entry("k", "v")},
		"d.k.l_w":  {entry("k", ""), entry("l", "w")},
		"d.l":      {entry("", ""), entry("l", "")},
		"d._v.l.m": {entry("", "v"), entry("l", ""), entry("m", "")},
	} {
		if name := nameOf("d", entries); name != want {
			t.Errorf("%v: %q, want %q", entries, name, want)
		}
	}
}
