package serve

import (
	"fmt"
	"testing"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

// The example's limits apply to the descriptors that its Envoy sends: an address, a path, a tenant.
func TestEnvoyExample(t *testing.T) {
	client := startOn(t, redistest.Shared(t).Addr(), "../examples/envoy", "CACHE_KEY_PREFIX="+redistest.Prefix()).client(t)
	expect(t, client, asking("example remote_address=10.0.0.1 path=/"), "OK: OK 59, OK")
	expect(t, client, asking("example remote_address=10.0.0.1 path=/export tenant=silver"), "OK: OK 58, OK 9, OK 9999")
	expect(t, client, asking("example remote_address=10.0.0.2 path=/export tenant=gold"), "OK: OK 59, OK 8, OK 499")
	for want := range 5 {
		expect(t, client, asking("example login=ann"), fmt.Sprint("OK: OK ", 4-want))
	}
	expect(t, client, asking("example login=ann"), "OVER: OVER 0")
}
