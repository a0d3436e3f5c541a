package remote_test

import (
	"testing"

	"github.com/tierlimit/tierlimit/internal/conformance"
	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/remote"
)

// Laws 1, 5 and 10: the scripts decide like the models, on a real Redis and on miniredis, since the scripts need no
// special features.
func TestLaws1And5And10Conformance(t *testing.T) {
	t.Run("on a server", func(t *testing.T) {
		t.Run("redis", func(t *testing.T) {
			t.Parallel() // most of the time is spent waiting for Redis
			conformance.Test(t, remote.NewScript(redistest.Shared(t).Client(t)))
		})
		t.Run("redis without a library", func(t *testing.T) {
			t.Parallel()
			script := remote.NewScript(redistest.Shared(t).Client(t))
			script.WithoutLibrary()
			conformance.Test(t, script)
		})
	})
	t.Run("miniredis", func(t *testing.T) {
		embedded, _ := redistest.Embedded(t)
		redistest.FewerCases(t, 5)
		conformance.Test(t, remote.NewScript(embedded))
	})
}
