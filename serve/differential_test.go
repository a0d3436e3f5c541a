//go:build original

package serve

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

var (
	originalPath = flag.String("original", "", "envoyproxy/ratelimit's `binary`, to compare with; \"build\" builds it from the module proxy")
	requestsFlag = flag.Int("requests", 3000, "how many `requests` to compare for each configuration")
	seedFlag     = flag.Uint64("seed", 0, "`seed` of random configurations and requests; 0 for any")
)

const originalPackage = "github.com/envoyproxy/ratelimit/src/service_cmd@latest"

// original returns the path of envoyproxy/ratelimit's binary. Without a binary the test is skipped, so that CI needs
// no network.
func original(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Skip("there is no cache directory for the original's binary:", err)
	}
	built := filepath.Join(cache, "tierlimit", "service_cmd")
	switch path := *originalPath; {
	case path != "" && path != "build":
		return path
	case path == "build":
		if _, err := os.Stat(built); err == nil {
			return built
		}
		build := exec.Command("go", "install", originalPackage)
		build.Env = append(os.Environ(), "GOBIN="+filepath.Dir(built), "GOFLAGS=-mod=mod")
		build.Dir = t.TempDir()
		if out, err := build.CombinedOutput(); err != nil {
			t.Skipf("the original cannot be built: %v\n%s", err, out)
		}
		return built
	}
	if _, err := os.Stat(built); err == nil {
		return built
	}
	t.Skipf("the original is not there; run it as: go -C serve test -tags original -run %s -original build", t.Name())
	return ""
}

// startOriginal starts envoyproxy/ratelimit on a Redis of its own.
func startOriginal(t *testing.T, configDir string, settings ...string) ratelimitv3.RateLimitServiceClient {
	t.Helper()
	original(t)
	return startOriginalAt(t, redistest.Start(t).Addr(), configDir, settings...)
}

func startOriginalAt(t *testing.T, redis, configDir string, settings ...string) ratelimitv3.RateLimitServiceClient {
	t.Helper()
	path := original(t)
	ports := freePorts(t, 3)
	command := exec.Command(path)
	command.Env = append([]string{
		"RUNTIME_ROOT=" + configDir, "RUNTIME_SUBDIRECTORY=.", "RUNTIME_WATCH_ROOT=false",
		"REDIS_SOCKET_TYPE=tcp", "REDIS_TYPE=single", "REDIS_URL=" + redis,
		"USE_STATSD=false", "DISABLE_STATS=true", "LOG_LEVEL=error",
		"HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1",
		"PORT=" + ports[0], "GRPC_PORT=" + ports[1], "DEBUG_PORT=" + ports[2],
	}, settings...)
	var out strings.Builder
	command.Stdout, command.Stderr = &out, &out
	if err := redistest.StartTied(command); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		if t.Failed() {
			t.Log("the original said:", out.String())
		}
	})
	return dial(t, "127.0.0.1:"+ports[1])
}

func freePorts(t *testing.T, count int) (ports []string) {
	t.Helper()
	for range count {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close() // after all ports have been found
		_, port, _ := net.SplitHostPort(listener.Addr().String())
		ports = append(ports, port)
	}
	return ports
}

// startOwn starts this service on a Redis of its own.
func startOwn(t testing.TB, configDir string, settings ...string) *Server {
	t.Helper()
	return startOn(t, redistest.Start(t).Addr(), configDir, settings...)
}

// Both services give the same answers to random requests under random configurations, field by field.
func TestDifferential(t *testing.T) {
	original(t)
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	for i, settings := range [][]string{
		{},
		{"LIMIT_RESPONSE_HEADERS_ENABLED=true", "RESPONSE_DYNAMIC_METADATA=true"},
		{"LIMIT_RESPONSE_HEADERS_ENABLED=true", "QUOTA_MODE=true", "LIMIT_LIMIT_HEADER=X-Limit", "RESPONSE_DYNAMIC_METADATA=true"},
		{"SHADOW_MODE=true", "LIMIT_RESPONSE_HEADERS_ENABLED=true", "RESPONSE_DYNAMIC_METADATA=true"},
	} {
		t.Run(strings.Join(append(settings, "default")[:1], ""), func(t *testing.T) {
			awaitMiddleOfHour(t)
			g := newGenerator(seed + uint64(i))
			text := g.config()
			dir := configDir(t, text)
			theirs, ours := startOriginal(t, dir, settings...), startOwn(t, dir, settings...).client(t)
			var seen tally
			for n := range *requestsFlag {
				request := g.request()
				if want, got := compare(t, theirs, ours, request, &seen); want != got {
					t.Fatalf("seed %d, request %d: %s\noriginal: %s\nours:     %s\n%s", seed+uint64(i), n, strings.Join(strings.Fields(protojson.Format(request)), ""), want, got, text)
				}
			}
			t.Logf("seed %d: %d requests, %d of them over a limit, %d errors, %d answers with limits' metadata; of %d descriptors with a limit %d over it", seed+uint64(i),
				*requestsFlag, seen.over, seen.errors, seen.metadata, seen.limited, seen.descriptorsOver)
		})
	}
}

// compare sends a request to both services, and returns the answers as texts. If a second of the clock ends
// meanwhile, it clears the times in them.
func compare(t *testing.T, theirs, ours ratelimitv3.RateLimitServiceClient, request *ratelimitv3.RateLimitRequest, seen *tally) (want, got string) {
	t.Helper()
	began := time.Now().Unix()
	a, b := ask(t, theirs, request), ask(t, ours, request)
	seen.count(b)
	if time.Now().Unix() != began { // the clock has ticked in between
		for _, response := range []*ratelimitv3.RateLimitResponse{a.response, b.response} {
			for _, s := range response.GetStatuses() {
				if s.GetDurationUntilReset() != nil {
					s.DurationUntilReset = &durationpb.Duration{}
				}
			}
			for _, h := range response.GetResponseHeadersToAdd() {
				if strings.HasSuffix(h.GetKey(), "Reset") {
					h.Value = ""
				}
			}
		}
	}
	return a.text(), b.text()
}

// tally counts kinds of answers.
type tally struct{ over, errors, metadata, limited, descriptorsOver int }

func (n *tally) count(a answer) {
	if a.err != nil {
		n.errors++
	}
	if a.response.GetOverallCode() == ratelimitv3.RateLimitResponse_OVER_LIMIT {
		n.over++
	}
	if a.response.GetDynamicMetadata().GetFields()["metadata"] != nil {
		n.metadata++
	}
	for _, s := range a.response.GetStatuses() {
		if s.GetCurrentLimit() != nil {
			n.limited++
		}
		if s.GetCode() == ratelimitv3.RateLimitResponse_OVER_LIMIT {
			n.descriptorsOver++
		}
	}
}

// text returns all fields, in a fixed order. An error is represented by its code, because the sentences differ.
func (a answer) text() string {
	if a.err != nil {
		return "error " + status.Code(a.err).String()
	}
	response := proto.CloneOf(a.response)
	for _, s := range response.GetStatuses() {
		if l := s.GetCurrentLimit(); l.GetUnitMultiplier().GetValue() <= 1 && l != nil {
			l.UnitMultiplier = nil // the original never shows it: a known defect
		}
	}
	for _, d := range response.GetDynamicMetadata().GetFields()["descriptors"].GetListValue().GetValues() {
		// The text form of a message is random on purpose.
		if l := d.GetStructValue().GetFields()["limit"]; l != nil {
			d.GetStructValue().Fields["limit"].Kind = nil
		}
	}
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(response)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s %x", strings.ReplaceAll(protojson.Format(response), "\n", ""), text)
}

// awaitMiddleOfHour skips a test that would see the end of an hour. Both services start new windows then, but not at
// the same instant.
func awaitMiddleOfHour(t *testing.T) {
	t.Helper()
	if left := time.Until(time.Now().Truncate(time.Hour).Add(time.Hour)); left < 3*time.Minute {
		t.Skip("an hour ends in ", left)
	}
}

// generator makes random configurations, and requests that match them.
type generator struct {
	*rand.Rand
	paths [][]part
	units []string
	names int
	pools int
}

// part is a descriptor of a path: a key, and values to send for it.
type part struct {
	key    string
	values []string
}

func newGenerator(seed uint64) *generator {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0))}
	// The original distinguishes the counters of a descriptor by when their windows began, and not by the windows'
	// lengths. This is a known defect, which has a test of its own.
	seen := make(map[int64]bool)
	for _, unit := range []string{"hour", "day", "week", "month", "year"} {
		length := map[string]int64{"hour": 1, "day": 24, "week": 168, "month": 720, "year": 8760}[unit] * 3600
		start := time.Now().Unix() / length * length
		if !seen[start] {
			g.units = append(g.units, unit)
		}
		seen[start] = true
	}
	return g
}

func (g *generator) pick(from ...string) string { return from[g.IntN(len(from))] }
func (g *generator) chance(percent int) bool    { return g.IntN(100) < percent }

// config returns a configuration with at least one limit.
func (g *generator) config() string {
	for {
		var b strings.Builder
		b.WriteString("domain: test\ndescriptors:\n")
		g.descriptors(&b, "  ", nil, 3, true)
		if len(g.paths) > 0 {
			return b.String()
		}
	}
}

// descriptors writes descriptors of one level. They may have metadata, unless the metric of one above contains
// values: the original loses the metadata then, a known defect.
func (g *generator) descriptors(b *strings.Builder, indent string, path []part, depth int, mayHaveMetadata bool) {
	used := make(map[string]bool)
	for range 3 + g.IntN(3) {
		key := g.pick("ka", "kb", "kc", "kd", "ke")
		value := g.pick("", "", "va", "vb", "v*", "w*x", "a*b*c", "*z", "*")
		if used[key+value] {
			continue
		}
		used[key+value] = true
		fmt.Fprintf(b, "%s- key: %s\n", indent, key)
		p := part{key, []string{"va", "vb", "other", "", "w1x", "wx", "a1b2c", "abc", "tz"}}
		if value != "" {
			fmt.Fprintf(b, "%s  value: %q\n", indent, value)
			if !strings.Contains(value, "*") {
				p.values = []string{value, value, "other"}
			} else if g.chance(40) {
				fmt.Fprintf(b, "%s  share_threshold: true\n", indent)
			}
		}
		own := append(path[:len(path):len(path)], p)
		keeps := mayHaveMetadata
		if g.chance(75) {
			tellsValues := g.limit(b, indent)
			keeps = keeps && !tellsValues
			g.paths = append(g.paths, own)
		}
		if keeps && g.chance(70) {
			g.metadata(b, indent)
		}
		if depth > 1 && g.chance(45) {
			fmt.Fprintf(b, "%s  descriptors:\n", indent)
			g.descriptors(b, indent+"    ", own, depth-1, keeps)
		}
	}
}

// metadata writes values under names that several descriptors share, so that the first one counts, and a structure
// under a unique name. If two structures were merged, the original would change its own configuration, a known
// defect.
func (g *generator) metadata(b *strings.Builder, indent string) {
	g.pools++
	fmt.Fprintf(b, "%s  metadata:\n", indent)
	for _, name := range []string{"ma", "mb"} {
		fmt.Fprintf(b, "%s    %s: %s\n", indent, name, g.pick("1", "-2.5", "true", "off", "2022-11-28", "text", `"7"`, "[1, two, [false]]"))
	}
	if g.chance(50) {
		fmt.Fprintf(b, "%s    pool%d: {name: %s, sizes: [1, 2.5], deep: {er: true}}\n", indent, g.pools, g.pick("a", "b"))
	}
}

// limit writes a limit, and reports whether its metric contains values.
func (g *generator) limit(b *strings.Builder, indent string) (tellsValues bool) {
	for _, flag := range []string{"shadow_mode", "quota_mode"} {
		if g.chance(12) {
			fmt.Fprintf(b, "%s  %s: true\n", indent, flag)
		}
	}
	if tellsValues = g.chance(15); tellsValues {
		fmt.Fprintf(b, "%s  %s: true\n", indent, g.pick("detailed_metric", "value_to_metric"))
	}
	fmt.Fprintf(b, "%s  rate_limit:\n", indent)
	if g.chance(10) {
		fmt.Fprintf(b, "%s    unlimited: true\n", indent)
	} else {
		fmt.Fprintf(b, "%s    unit: %s\n%s    requests_per_unit: %d\n", indent, g.pick(g.units...), indent, []int{0, 1, 5, 20, 100, 4_000_000_000}[g.IntN(6)])
	}
	if g.chance(30) {
		g.names++
		fmt.Fprintf(b, "%s    name: n%d\n", indent, g.names)
		if g.names > 1 && g.chance(50) {
			fmt.Fprintf(b, "%s    replaces:\n%s    - name: n%d\n", indent, indent, 1+g.IntN(g.names-1))
		}
	}
	return tellsValues
}

func (g *generator) request() *ratelimitv3.RateLimitRequest {
	request := &ratelimitv3.RateLimitRequest{Domain: "test"}
	switch g.IntN(60) {
	case 0:
		request.Domain = ""
	case 1:
		request.Domain = "unknown"
	}
	if g.chance(30) {
		request.HitsAddend = []uint32{0, 1, 2, 3, 10, 1000, 1<<32 - 1}[g.IntN(7)]
	}
	count := 1 + g.IntN(4)
	if g.chance(2) {
		count = 0
	}
	for range count {
		request.Descriptors = append(request.Descriptors, g.descriptor())
	}
	return request
}

func (g *generator) descriptor() *commonv3.RateLimitDescriptor {
	d := &commonv3.RateLimitDescriptor{}
	for _, p := range g.paths[g.IntN(len(g.paths))] {
		d.Entries = append(d.Entries, &commonv3.RateLimitDescriptor_Entry{Key: p.key, Value: g.pick(p.values...)})
	}
	switch g.IntN(12) {
	case 0:
		d.Entries = d.Entries[1:]
	case 1:
		d.Entries = append(d.Entries, &commonv3.RateLimitDescriptor_Entry{Key: "ka", Value: "va"})
	}
	if g.chance(15) {
		d.HitsAddend = wrapperspb.UInt64([]uint64{0, 0, 1, 2, 5, 1 << 20}[g.IntN(6)])
	}
	if g.chance(12) {
		unit := typev3.RateLimitUnit_value[strings.ToUpper(g.pick(g.units...))]
		if unit == 0 { // an unknown unit would end the original's process
			unit = int32(typev3.RateLimitUnit_HOUR)
		}
		d.Limit = &commonv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: []uint32{0, 1, 7, 50}[g.IntN(4)], Unit: typev3.RateLimitUnit(unit)}
		if g.chance(30) { // no more than 1: above it the original ignores the multiplier, a known defect
			d.Limit.UnitMultiplier = wrapperspb.UInt32(uint32(g.IntN(2)))
		}
	}
	// The original charges hits that should be given back, a known defect. The services agree only where there is
	// nothing to charge or no limit applies.
	if g.chance(8) {
		d.IsNegativeHits = true
		if g.chance(50) {
			d.HitsAddend = wrapperspb.UInt64(0)
		} else {
			d.Limit, d.Entries = nil, []*commonv3.RateLimitDescriptor_Entry{{Key: "unknown", Value: "va"}}
			d.HitsAddend = wrapperspb.UInt64(uint64(g.IntN(10)))
		}
	}
	return d
}
