package serve

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

// severalKinds has limits of several kinds in one domain.
const severalKinds = `
domain: d
descriptors:
  - {key: counted, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: quota, quota_mode: true, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: log, rate_limit: {unit: hour, requests_per_unit: 3, algorithm: sliding-log}}
  - {key: big, rate_limit: {unit: hour, requests_per_unit: 100000, algorithm: sliding-log}}
  - {key: large, rate_limit: {unit: hour, requests_per_unit: 100000, algorithm: sliding-log}}
  - {key: gcra, rate_limit: {unit: day, requests_per_unit: 100, algorithm: gcra, burst: 100}}
`

// Two logs that each grant the hits may be more than one trip may write. They are charged separately.
func TestHitsOfSeveralLogs(t *testing.T) {
	request := asking("d big=a large=a")
	request.HitsAddend = 60_000
	expect(t, start(t, severalKinds).client(t), request, "OK: OK 40000, OK 40000")
}

// A limit that is only looked at, because another denies, has fewer units left than the hits: its reset is not now.
func TestResetOfLooks(t *testing.T) {
	client := start(t, severalKinds).client(t)
	expect(t, client, asking("d counted=a log=a"), "OK: OK 0, OK 2")
	request := asking("d counted=a log=a")
	request.Descriptors[1].HitsAddend = wrapperspb.UInt64(3)
	if got := expect(t, client, request, "OVER: OVER 0, OVER 0").GetStatuses()[1].GetDurationUntilReset().GetSeconds(); got < 3000 {
		t.Errorf("reset after %d s", got)
	}
}

// A request that its quotas deny charges no limit that counts only what is allowed.
func TestQuotasThatDeny(t *testing.T) {
	client := start(t, severalKinds).client(t)
	expect(t, client, asking("d quota=a log=a"), "OK: OK 0, OK 2")
	expect(t, client, asking("d quota=a log=a"), "OVER: OVER 0, OK 2")
	expect(t, client, asking("d log=a"), "OK: OK 1")
	expect(t, client, asking("d quota=a quota=b log=a"), "OK: OVER 0, OK 0, OK 0") // not all quotas are over
}

// A descriptor's own limit need not fit the algorithm of the configured one.
func TestOwnLimitsThatDoNotFit(t *testing.T) {
	client := start(t, severalKinds).client(t)
	for word, quota := range map[string]uint32{"log=a": 1_000_000, "gcra=a": 50} {
		want := fmt.Sprintf("OK: OK %d", min(quota, 100_000)-1) // the automatic choice is GCRA with a burst of 100,000
		request := asking("d " + word)
		request.Descriptors[0].Limit = &commonv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: quota, Unit: typev3.RateLimitUnit_YEAR}
		expect(t, client, request, want)
	}
}

// An overlay and a configuration that fit only each other are put in force, whichever comes first.
func TestOverlayBeforeItsConfiguration(t *testing.T) {
	plane, address := startControlPlane(t)
	path := filepath.Join(t.TempDir(), "overlay.yaml")
	write := func(text string) { must(t, os.WriteFile(path, []byte(text), 0o600)) }
	write(`limits: [{match: "d.*", algorithm: sliding-log}]`)
	server := startOn(t, redistest.Shared(t).Addr(), t.TempDir(), "CACHE_KEY_PREFIX="+redistest.Prefix(),
		"CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL="+address, "TIERLIMIT_OVERLAY="+path)
	<-plane.asked
	plane.publish("1", resource(t, `name: "a" domain: "d" descriptors { key: "k" rate_limit { unit: YEAR requests_per_unit: 3 } }`))
	write(`limits: [{match: "d.*", unit_multiplier: 2, algorithm: gcra}]`)
	redistest.Eventually(t, "two years are refused", func() bool { return server.stats.ConfigLoadError.Load() == 1 })
	plane.publish("2", resource(t, `name: "a" domain: "d" descriptors { key: "k" rate_limit { unit: MONTH requests_per_unit: 4000000000 } }`))
	redistest.Eventually(t, "both are in force", func() bool { return server.service.Config().Limits()[0].Window == 60*24*time.Hour })
}

// As many limits as fit into a message of a control plane can be read.
func TestLargeMessages(t *testing.T) {
	plane, address := startControlPlane(t)
	startOn(t, redistest.Shared(t).Addr(), t.TempDir(), "CACHE_KEY_PREFIX="+redistest.Prefix(),
		"CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL="+address)
	<-plane.asked
	var b strings.Builder
	for i := range 80_000 {
		fmt.Fprintf(&b, `descriptors { key: "k" value: "v%d" rate_limit { unit: YEAR requests_per_unit: 3 } } `, i)
	}
	if ack := plane.publish("1", resource(t, `name: "a" domain: "d" `+b.String())); ack.GetErrorDetail() != nil {
		t.Error(ack.GetErrorDetail())
	}
}
