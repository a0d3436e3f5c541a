//go:build 386 || arm || mips || mipsle

package embedded_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/tierlimit/tierlimit/embedded"
	"github.com/tierlimit/tierlimit/internal/standin"
)

// On a 32-bit platform, every decision would fail with an error of the script. Open therefore returns
// an error that says what to do instead.
func TestOpenOn32Bits(t *testing.T) {
	if limiter, err := embedded.Open(); !errors.Is(err, standin.ErrPlatform) || !strings.Contains(err.Error(), "connect to a Redis server") {
		t.Errorf("%v, %v", limiter, err)
	}
}
