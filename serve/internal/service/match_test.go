package service

import (
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/serve/internal/config"
)

// A request with as many descriptors as fit into a message, each with a limit that replaces
// others, takes no time that grows with the square of their number.
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
	if took := time.Since(began); took > 20*time.Second { // milliseconds; compared in pairs, minutes
		t.Errorf("it took %v", took)
	}
	if all[7].limit != nil || all[0].limit != better {
		t.Errorf("%+v, %+v", all[7], all[0])
	}
}
