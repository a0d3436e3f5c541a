package embedded_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/tierlimit/tierlimit/embedded"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// The error about a nil option counts the options that the caller gave, and not those that Open adds.
func TestNilOptionsAreCountedAsTheCallerGaveThem(t *testing.T) {
	_, err := embedded.Open(tiered.FleetSize(1), nil)
	if !errors.Is(err, limit.ErrInvalidOption) || !strings.HasSuffix(err.Error(), "option 2 of 2 is nil") {
		t.Error(err)
	}
}
