// Command bench compares tierlimit-serve with envoyproxy/ratelimit. It runs the same load on each in turn, each with
// a Redis of its own, and then measures tierlimit-serve while its Redis is stopped. It prints a table of goals at the
// end, and exits with status 1 if a goal was missed.
//
//	go -C serve run ./bench -original PATH
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

const config = `domain: bench
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 1000000000}
`

func main() {
	original := flag.String("original", "", "envoyproxy/ratelimit's `binary`; without it, only this service is measured")
	own := flag.String("own", "", "this service's `binary`; \"\" builds it")
	lasts := flag.Duration("for", 3*time.Second, "how `long` each measurement lasts")
	rounds := flag.Int("rounds", 3, "how many `rounds`; the median is shown")
	connections := flag.Int("connections", 4, "how many `connections`")
	floor := flag.Bool("floor", true, "also measure a gRPC server that decides nothing")
	stopped := flag.Bool("stopped", true, "also measure this service while its Redis is stopped")
	at := flag.String("at", "", "ask a server at this `address`, and measure no processor time")
	callers := flag.Int("callers", 64, "how many `callers`, with -at")
	values := flag.Int("values", 100_000, "how many `values`, with -at")
	flag.Parse()
	if *at != "" {
		s := &side{name: *at, address: *at, connections: *connections}
		r, err := s.measure(*callers, *values, *lasts)
		if err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		fmt.Printf("%.0f decisions/s, p50 %.2f ms, p99 %.2f ms, %d errors\n", r.rate, r.p50, r.p99, r.errors)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *original, *own, *lasts, *rounds, *connections, *floor, *stopped)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// side is a server under measurement.
type side struct {
	name        string
	pid         int
	redis       int // process ID; 0: none
	address     string
	connections int
}

// run measures until the context ends, and removes what it has made.
func run(ctx context.Context, original, own string, lasts time.Duration, rounds, connections int, floor, stopped bool) error {
	if os.Getenv("BENCH_FLOOR") != "" {
		return serveFloor()
	}
	if rounds < 1 {
		return fmt.Errorf("-rounds %d must be at least 1", rounds)
	}
	dir, err := os.MkdirTemp("", "tierlimit-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.MkdirAll(filepath.Join(dir, "config"), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "config", "bench.yaml"), []byte(config), 0o600); err != nil {
		return err
	}
	if own == "" {
		own = filepath.Join(dir, "tierlimit-serve")
		build := exec.Command("go", "build", "-o", own, "./cmd/tierlimit-serve")
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("building: %w\n%s", err, out)
		}
	}
	binaries := [][2]string{{ownName, own}}
	if original != "" {
		binaries = append(binaries, [2]string{originalName, original})
	}
	if floor {
		binaries = append(binaries, [2]string{floorName, os.Args[0]})
	}
	var goals []goal
	var sides []*side
	for _, b := range binaries {
		s, end, err := start(b[0], b[1], dir, connections, 5*time.Second) // long, so that Redis decides all
		if err != nil {
			return err
		}
		defer end()
		sides = append(sides, s)
	}
	fmt.Printf("%-22s %8s %8s %12s %9s %9s %14s %14s\n", "server", "callers", "values", "decisions/s", "p50 ms", "p99 ms", "server µs/dec", "redis µs/dec")
	for _, load := range []struct{ callers, values int }{{64, 100_000}, {64, 1}, {512, 100_000}, {512, 1}} {
		results := make(map[string][]result) // by the side's name
		for range rounds {
			for _, s := range sides {
				r, err := s.measure(load.callers, load.values, lasts)
				if err := errors.Join(err, ctx.Err()); err != nil {
					return fmt.Errorf("%s: %w", s.name, err)
				}
				results[s.name] = append(results[s.name], r)
			}
		}
		for _, s := range sides {
			median(results[s.name]).print(s.name, load.callers, load.values)
		}
		if original != "" {
			work := fmt.Sprintf("%d callers, %d values", load.callers, load.values)
			goals = append(goals, goalsBeside(work, results[ownName], results[originalName], results[floorName])...)
		}
	}
	if stopped {
		const callers, values = 64, 100_000
		var results []result
		for range rounds {
			r, err := measureStopped(own, dir, connections, callers, values, lasts)
			if err := errors.Join(err, ctx.Err()); err != nil {
				return fmt.Errorf("with Redis stopped: %w", err)
			}
			results = append(results, r)
		}
		r := median(results)
		r.print("with Redis stopped", callers, values)
		goals = append(goals, goalsStopped("Redis stopped", r)...)
	}
	return judge(os.Stdout, goals)
}

// The sides' names.
const (
	ownName      = "tierlimit-serve"
	originalName = "envoyproxy/ratelimit"
	floorName    = "empty gRPC handler"
)

func (r result) print(name string, callers, values int) {
	fmt.Printf("%-22s %8d %8d %12.0f %9.2f %9.2f %14.1f %14.1f\n", name, callers, values, r.rate, r.p50, r.p99, r.cpu, r.redis)
	if r.errors > 0 {
		fmt.Printf("%-22s %d errors\n", "", r.errors)
	}
}

// start starts a server with its own Redis. The deadline is for this service's decisions.
func start(name, binary, dir string, connections int, deadline time.Duration) (*side, func(), error) {
	redis, endRedis, err := redistest.StartForExample()
	if err != nil {
		return nil, nil, err
	}
	ports, err := freePorts(3)
	if err != nil {
		endRedis()
		return nil, nil, err
	}
	command := exec.Command(binary)
	command.Env = append(os.Environ(),
		"RUNTIME_ROOT="+dir, "RUNTIME_SUBDIRECTORY=.", "RUNTIME_WATCH_ROOT=false", "REDIS_SOCKET_TYPE=tcp", "REDIS_TYPE=single", "REDIS_URL="+redis.Addr(),
		"USE_STATSD=false", "LOG_LEVEL=error", "DISABLE_STATS=true",
		"HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1", "PORT="+ports[0], "GRPC_PORT="+ports[1], "DEBUG_PORT="+ports[2], "TIERLIMIT_DEADLINE="+deadline.String(), "BENCH_FLOOR=")
	if name == floorName {
		command.Env = append(command.Env, "BENCH_FLOOR=127.0.0.1:"+ports[1])
	}
	if err := redistest.StartTied(command); err != nil {
		endRedis()
		return nil, nil, err
	}
	s := &side{name: name, pid: command.Process.Pid, redis: pidOf(redis), address: "127.0.0.1:" + ports[1], connections: connections}
	end := func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		endRedis()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	client, err := grpc.NewClient(s.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err == nil {
		defer client.Close()
		_, err = ratelimitv3.NewRateLimitServiceClient(client).ShouldRateLimit(ctx, request("warm"), grpc.WaitForReady(true))
	}
	if err != nil {
		end()
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	return s, end, nil
}

// pidOf returns the process ID of a Redis, or 0 if it cannot find out.
func pidOf(redis redistest.Endpoint) int {
	connection, err := net.Dial("tcp", redis.Addr())
	if err != nil {
		return 0
	}
	defer connection.Close()
	fmt.Fprint(connection, "INFO server\r\n")
	text := make([]byte, 8192)
	n, _ := connection.Read(text)
	_, rest, _ := strings.Cut(string(text[:n]), "process_id:")
	line, _, _ := strings.Cut(rest, "\r")
	pid, _ := strconv.Atoi(line)
	return pid
}

func freePorts(count int) (ports []string, err error) {
	for range count {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer listener.Close()
		_, port, _ := net.SplitHostPort(listener.Addr().String())
		ports = append(ports, port)
	}
	return ports, nil
}

func request(value string) *ratelimitv3.RateLimitRequest {
	return &ratelimitv3.RateLimitRequest{Domain: "bench", Descriptors: []*commonv3.RateLimitDescriptor{
		{Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: "user", Value: value}}},
	}}
}

// result is a measurement: decisions per second, latencies in ms, and CPU time per decision in µs.
type result struct {
	rate, p50, p99, cpu, redis float64
	errors                     int
}

func (s *side) measure(callers, values int, lasts time.Duration) (result, error) {
	messages := make([][]byte, values)
	for i := range messages {
		var err error
		if messages[i], err = message(request("user-" + strconv.Itoa(i))); err != nil {
			return result{}, err
		}
	}
	connections := make([]*connection, s.connections)
	for i := range connections {
		var err error
		if connections[i], err = connect(s.address, messages, uint64(i)); err != nil {
			return result{}, err
		}
		defer connections[i].conn.Close()
	}
	failures := make([]error, len(connections))
	var all sync.WaitGroup
	cpu, redis := cpuOf(s.pid), cpuOf(s.redis)
	began := time.Now()
	for i, c := range connections {
		all.Go(func() { failures[i] = c.run(callers/len(connections), began.Add(lasts)) })
	}
	all.Wait()
	lasted := time.Since(began)
	var r result
	var took []time.Duration
	for i, c := range connections {
		if failures[i] != nil {
			return result{}, failures[i]
		}
		took = append(took, c.took...)
		r.errors += c.errors
	}
	slices.Sort(took)
	n := float64(len(took) - r.errors)
	if n == 0 {
		return result{}, fmt.Errorf("no decision was made: %d callers over %d connections, %d errors", callers, len(connections), r.errors)
	}
	r.rate = n / lasted.Seconds()
	r.p50, r.p99 = ms(took[len(took)/2]), ms(took[len(took)*99/100])
	r.cpu = micros(cpuOf(s.pid)-cpu) / n
	r.redis = micros(cpuOf(s.redis)-redis) / n
	return r, nil
}

func ms(d time.Duration) float64     { return d.Seconds() * 1e3 }
func micros(d time.Duration) float64 { return d.Seconds() * 1e6 }

// cpuOf returns the processor time that a process has taken.
func cpuOf(pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// median returns the median of each figure separately.
func median(all []result) result {
	of := func(number func(result) float64) float64 {
		var numbers []float64
		for _, r := range all {
			numbers = append(numbers, number(r))
		}
		slices.Sort(numbers)
		return numbers[len(numbers)/2]
	}
	m := result{
		rate: of(func(r result) float64 { return r.rate }), p50: of(func(r result) float64 { return r.p50 }),
		p99: of(func(r result) float64 { return r.p99 }), cpu: of(func(r result) float64 { return r.cpu }),
		redis: of(func(r result) float64 { return r.redis }),
	}
	for _, r := range all {
		m.errors += r.errors
	}
	return m
}
