package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/tierlimit/tierlimit/internal/inspect"
	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func newLimiter(t testing.TB) *tiered.Limiter {
	t.Helper()
	return newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
}

// newLimiterOn returns a limiter with a long deadline, because tests that are not about deadlines must
// not depend on them.
func newLimiterOn(t testing.TB, client redis.UniversalClient, prefix string, options ...tiered.Option) *tiered.Limiter {
	t.Helper()
	options = append([]tiered.Option{
		tiered.Prefix(prefix), tiered.Logger(slog.New(slog.DiscardHandler)), tiered.Deadline(5 * time.Second),
		tiered.LedgerKeys(1000), tiered.RememberDenials(1000),
	}, options...)
	l := redistest.Reached(t, client, func() (*tiered.Limiter, error) { return tiered.New(client, options...) })
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func newRule(t testing.TB, l *tiered.Limiter, name string, lim limit.Limit, options ...tiered.RuleOption) *tiered.Rule {
	t.Helper()
	r, err := l.Rule(name, lim, options...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// service counts the calls that reach it, and echoes messages.
type service struct {
	pb.UnimplementedTestServiceServer
	calls atomic.Int64
}

func (s *service) EmptyCall(context.Context, *pb.Empty) (*pb.Empty, error) {
	s.calls.Add(1)
	return &pb.Empty{}, nil
}

func (s *service) UnaryCall(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	s.calls.Add(1)
	return &pb.SimpleResponse{}, nil
}

func (s *service) FullDuplexCall(stream pb.TestService_FullDuplexCallServer) error {
	s.calls.Add(1)
	for {
		if _, err := stream.Recv(); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if err := stream.Send(&pb.StreamingOutputCallResponse{}); err != nil {
			return err
		}
	}
}

// serve starts a server with interceptors on the loopback interface, and connects a client.
func serve(t *testing.T, limits *Server, options ...grpc.DialOption) (pb.TestServiceClient, *service) {
	t.Helper()
	var serverOptions []grpc.ServerOption
	if limits != nil {
		serverOptions = []grpc.ServerOption{grpc.ChainUnaryInterceptor(limits.Unary), grpc.ChainStreamInterceptor(limits.Stream)}
	}
	server, s := grpc.NewServer(serverOptions...), &service{}
	pb.RegisterTestServiceServer(server, s)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	options = append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))
	conn, err := grpc.NewClient(listener.Addr().String(), options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return pb.NewTestServiceClient(conn), s
}

func newServer(t *testing.T, l *tiered.Limiter, options ...Option) *Server {
	t.Helper()
	s, err := NewServer(l, options...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// details returns the code of an error, and the details that came with it.
func details(err error) (code codes.Code, retry *errdetails.RetryInfo, violated []string) {
	s := status.Convert(err)
	for _, detail := range s.Details() {
		switch d := detail.(type) {
		case *errdetails.RetryInfo:
			retry = d
		case *errdetails.QuotaFailure:
			for _, v := range d.GetViolations() {
				violated = append(violated, v.GetSubject())
			}
		}
	}
	return s.Code(), retry, violated
}

func with(pairs ...string) context.Context {
	return metadata.AppendToOutgoingContext(context.Background(), pairs...)
}

func TestUnaryCallsAboveTheLimitAreExhausted(t *testing.T) {
	l := newLimiter(t)
	tenant, search := newRule(t, l, "tenant", limit.PerHour(100)), newRule(t, l, "search", limit.PerHour(2))
	client, s := serve(t, newServer(t, l, Limit(tenant, Metadata("tenant")), Limit(search, Join(Peer, Method))))
	for range 2 {
		if _, err := client.EmptyCall(with("tenant", "a"), &pb.Empty{}); err != nil {
			t.Fatal(err)
		}
	}
	_, err := client.EmptyCall(with("tenant", "a"), &pb.Empty{})
	code, retry, violated := details(err)
	if code != codes.ResourceExhausted || !slices.Equal(violated, []string{"search"}) {
		t.Errorf("%v, violated %v", err, violated)
	}
	if d := retry.GetRetryDelay().AsDuration(); d < 59*time.Minute || d > time.Hour {
		t.Errorf("retry after %v", d)
	}
	if _, err := client.UnaryCall(with("tenant", "a"), &pb.SimpleRequest{}); err != nil {
		t.Errorf("another method: %v", err)
	}
	if s.calls.Load() != 3 {
		t.Errorf("%d calls reached the service", s.calls.Load())
	}
	// Law 9: a denied call was charged to nobody.
	if d, err := tenant.Peek(context.Background(), "a", 1); err != nil || d.Remaining != 97 {
		t.Errorf("the tenant has %d left (%v)", d.Remaining, err)
	}
}

func TestStreamsAboveTheLimitAreExhausted(t *testing.T) {
	l := newLimiter(t)
	client, s := serve(t, newServer(t, l, Limit(newRule(t, l, "streams", limit.PerHour(1)), Peer)))
	stream, err := client.FullDuplexCall(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for range 10 { // messages are not counted
		exchange(t, stream)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	second, err := client.FullDuplexCall(ctx)
	if err == nil {
		_, err = second.Recv()
	}
	if code, retry, violated := details(err); code != codes.ResourceExhausted || retry == nil || len(violated) != 1 {
		t.Errorf("the second stream: %v", err)
	}
	if s.calls.Load() != 1 {
		t.Errorf("%d streams reached the service", s.calls.Load())
	}
}

func exchange(t *testing.T, stream pb.TestService_FullDuplexCallClient) {
	t.Helper()
	if err := stream.Send(&pb.StreamingOutputCallRequest{}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
}

func TestMessagesOfAStreamAreCharged(t *testing.T) {
	l := newLimiter(t)
	rule := newRule(t, l, "messages", limit.PerHour(10))
	client, _ := serve(t, newServer(t, l,
		Limit(newRule(t, l, "streams", limit.PerHour(1)), Peer),
		Limit(rule, Peer, PerMessage(), Cost(func(_ context.Context, _ string, message any) int64 {
			if message == nil {
				return 1
			}
			return int64(message.(*pb.StreamingOutputCallRequest).GetResponseParameters()[0].GetSize())
		}))))
	stream, err := client.FullDuplexCall(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	send := func(size int32) error {
		if err := stream.Send(&pb.StreamingOutputCallRequest{ResponseParameters: []*pb.ResponseParameters{{Size: size}}}); err != nil {
			return err
		}
		_, err := stream.Recv()
		return err
	}
	if err := send(9); err != nil {
		t.Fatalf("the tenth unit: %v", err)
	}
	if code, _, violated := details(send(1)); code != codes.ResourceExhausted || !slices.Equal(violated, []string{"messages"}) {
		t.Errorf("the eleventh unit: %v %v", code, violated)
	}
}

func TestWhenRuleForAndPrincipal(t *testing.T) {
	l := newLimiter(t)
	free := newRule(t, l, "api", limit.PerHour(1))
	gold, err := free.WithLimit(limit.PerHour(3))
	if err != nil {
		t.Fatal(err)
	}
	plan := Principal(func(ctx context.Context) string { return Metadata("plan")(ctx, "") })
	client, _ := serve(t, newServer(t, l, Limit(free, FirstOf(plan, Everyone),
		When(func(_ context.Context, method string) bool { return method == pb.TestService_EmptyCall_FullMethodName }),
		RuleFor(func(ctx context.Context, method string) *tiered.Rule {
			if plan(ctx, method) == "gold" {
				return gold
			}
			return nil
		}))))
	for plan, want := range map[string]int{"gold": 3, "free": 1, "": 1} {
		allowed := 0
		for range 5 {
			ctx := context.Background()
			if plan != "" {
				ctx = with("plan", plan)
			}
			if _, err := client.EmptyCall(ctx, &pb.Empty{}); err == nil {
				allowed++
			}
			if _, err := client.UnaryCall(ctx, &pb.SimpleRequest{}); err != nil {
				t.Fatalf("a method that the limit is not for: %v", err)
			}
		}
		if allowed != want {
			t.Errorf("plan %q: %d calls were let through, want %d", plan, allowed, want)
		}
	}
}

func TestRuleForKey(t *testing.T) {
	l := newLimiter(t)
	free := newRule(t, l, "api", limit.PerHour(1))
	gold, err := free.WithLimit(limit.PerHour(3))
	if err != nil {
		t.Fatal(err)
	}
	client, _ := serve(t, newServer(t, l, Limit(free, Metadata("tenant"), RuleForKey(func(key string) *tiered.Rule {
		return map[string]*tiered.Rule{"gold": gold, "": nil}[key]
	}))))
	for tenant, want := range map[string]int{"gold": 3, "free": 1, "": 1} {
		allowed := 0
		for range 5 {
			if _, err := client.EmptyCall(with("tenant", tenant), &pb.Empty{}); err == nil {
				allowed++
			}
		}
		if allowed != want {
			t.Errorf("tenant %q: %d calls were let through, want %d", tenant, allowed, want)
		}
	}
}

// Law 6: an error is never sent as a denial.
func TestLaw6AnErrorIsNeverResourceExhausted(t *testing.T) {
	l := newLimiter(t)
	cost := int64(0)
	limited := Limit(newRule(t, l, "api", limit.PerHour(10)), Everyone,
		Cost(func(context.Context, string, any) int64 { return cost }))
	var log strings.Builder
	client, s := serve(t, newServer(t, l, limited, Logger(slog.New(slog.NewTextHandler(&log, nil)))))
	for _, cost = range []int64{0, 11} {
		if _, err := client.EmptyCall(context.Background(), &pb.Empty{}); status.Code(err) != codes.Internal || strings.Contains(err.Error(), "cost") {
			t.Errorf("cost %d: %v", cost, err)
		}
	}
	if lines := strings.Count(log.String(), "\n"); lines != 1 || !strings.Contains(log.String(), "cost") {
		t.Errorf("%d lines logged in a moment: %s", lines, log.String())
	}
	cost = 1
	var seen error
	open, _ := serve(t, newServer(t, l, limited, OnError(func(_ context.Context, _ string, err error) error {
		seen = err
		return nil
	})))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := client.EmptyCall(context.Background(), &pb.Empty{})
	if code, retry, _ := details(err); code != codes.Unavailable || retry == nil {
		t.Errorf("closed: %v", err)
	}
	if s.calls.Load() != 0 {
		t.Errorf("%d calls reached the service", s.calls.Load())
	}
	if _, err := open.EmptyCall(context.Background(), &pb.Empty{}); err != nil || !errors.Is(seen, limit.ErrClosed) {
		t.Errorf("OnError let through: %v, %v", err, seen)
	}
}

// Law 6: load is not an error. If the limiter has no room for a call, the rule's policy decides, as for
// any call that Redis does not answer in time, whether or not Redis is there. Only a rule whose policy
// is Deny answers Unavailable.
func TestLaw6NoErrorForLoad(t *testing.T) {
	const calls = 500
	server := redistest.Start(t)
	l := newLimiterOn(t, server.Client(t), redistest.Prefix(), tiered.QueueLength(1), tiered.Deadline(500*time.Millisecond))
	send := func(policy tiered.OutagePolicy) map[codes.Code]int {
		t.Helper()
		rule := newRule(t, l, policy.String(), limit.PerHour(1_000_000), tiered.OnOutage(policy))
		s := newServer(t, l, Limit(rule, Metadata("user")))
		answers := make(chan error, calls)
		for i := range calls {
			ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("user", fmt.Sprint(i)))
			go func() {
				_, err := s.Unary(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/a/B"}, func(context.Context, any) (any, error) { return nil, nil })
				answers <- err
			}()
		}
		counts := make(map[codes.Code]int)
		for range calls {
			counts[status.Code(<-answers)]++
		}
		return counts
	}
	for _, paused := range []bool{false, true} {
		if paused {
			server.Pause()
			defer server.Resume()
		}
		for _, policy := range []tiered.OutagePolicy{tiered.Approximate, tiered.Allow, tiered.Deny} {
			want := map[codes.Code]int{codes.OK: calls}
			got := send(policy)
			switch unavailable := got[codes.Unavailable]; {
			case policy == tiered.Deny && paused:
				want = map[codes.Code]int{codes.Unavailable: calls}
			case policy == tiered.Deny && unavailable > 0: // the limiter had no room for some
				want = map[codes.Code]int{codes.OK: calls - unavailable, codes.Unavailable: unavailable}
				maps.DeleteFunc(want, func(_ codes.Code, n int) bool { return n == 0 }) // on a busy machine, for all
			}
			if !maps.Equal(got, want) {
				t.Errorf("%v, paused %v: %v, want %v", policy, paused, got, want)
			}
		}
	}
	overload := uint64(0)
	for _, r := range l.Stats().Rules {
		overload += r.Decisions[limit.TierOverload].Allowed + r.Decisions[limit.TierOverload].Denied
	}
	if overload < calls/2 {
		t.Errorf("the test shows little: %d calls found no room", overload)
	}
}

// Law 11: in an outage, the rules' policies decide.
func TestOutagePolicies(t *testing.T) {
	server := redistest.Start(t)
	l := newLimiterOn(t, server.Client(t), "x")
	server.Kill()
	other := newRule(t, l, "other", limit.PerHour(10))
	for until := time.Now().Add(10 * time.Second); !l.Degraded(); { // failed trips open the breaker
		_, _ = other.Allow(t.Context(), "anyone")
		if time.Now().After(until) {
			t.Fatal("the breaker stays closed without Redis")
		}
	}
	deny, _ := serve(t, newServer(t, l, Limit(newRule(t, l, "login", limit.PerHour(9), tiered.OnOutage(tiered.Deny)), Everyone)))
	_, err := deny.EmptyCall(context.Background(), &pb.Empty{})
	if code, retry, violated := details(err); code != codes.Unavailable || retry == nil || violated != nil {
		t.Errorf("Deny: %v", err)
	}
	approximate, _ := serve(t, newServer(t, l, Limit(newRule(t, l, "search", limit.PerHour(1)), Everyone)))
	if _, err := approximate.EmptyCall(context.Background(), &pb.Empty{}); err != nil {
		t.Errorf("Approximate: %v", err)
	}
	if _, err := approximate.EmptyCall(context.Background(), &pb.Empty{}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("Approximate, above the limit: %v", err)
	}
}

// A call that is not sent because Redis is lost, under a rule that then lets nothing through, does not
// end with RESOURCE_EXHAUSTED.
func TestClientsAreToldOfAnOutage(t *testing.T) {
	server := redistest.Start(t)
	l := newLimiterOn(t, server.Client(t), "x")
	rule := newRule(t, l, "hourly", limit.PerHour(9), tiered.OnOutage(tiered.Deny))
	server.Kill()
	for name, longest := range map[string]time.Duration{"at once": 0, "waits": 200 * time.Millisecond} {
		c, err := NewClient(rule, MaxWait(longest))
		if err != nil {
			t.Fatal(err)
		}
		client, s := serve(t, nil, grpc.WithChainUnaryInterceptor(c.Unary))
		told := false
		for range 50 { // on a machine that stalled, the time may be over before the limiter has given the reason
			_, err = client.EmptyCall(t.Context(), &pb.Empty{})
			code, retry, violated := details(err)
			if told = code == codes.Unavailable && retry.GetRetryDelay().AsDuration() > 0 && violated == nil; told || longest == 0 {
				break
			}
		}
		if !told || s.calls.Load() != 0 {
			t.Errorf("%s: %v, %d calls were sent", name, err, s.calls.Load())
		}
	}
}

func TestClientKeepsWithinAQuota(t *testing.T) {
	l := newLimiter(t)
	hourly := newRule(t, l, "hourly", limit.PerHour(4))
	twice := ClientCost(func(_ context.Context, method string, message any) int64 {
		if (message == nil) != (method == pb.TestService_FullDuplexCall_FullMethodName) {
			t.Errorf("%s was asked about with message %v", method, message)
		}
		return 2
	})
	for name, option := range map[string]ClientOption{"at once": MaxWait(0), "longer than it may wait": MaxWait(10 * time.Second)} {
		c, err := NewClient(hourly, option, twice, ClientKey(func(context.Context, string) string { return name }))
		if err != nil {
			t.Fatal(err)
		}
		client, s := serve(t, nil, grpc.WithChainUnaryInterceptor(c.Unary), grpc.WithChainStreamInterceptor(c.Stream))
		if _, err := client.EmptyCall(context.Background(), &pb.Empty{}); err != nil {
			t.Fatal(err)
		}
		stream, err := client.FullDuplexCall(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		exchange(t, stream)
		start := time.Now()
		_, err = client.EmptyCall(context.Background(), &pb.Empty{})
		code, retry, violated := details(err)
		if code != codes.ResourceExhausted || retry.GetRetryDelay().AsDuration() < 59*time.Minute || len(violated) != 1 {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := client.FullDuplexCall(context.Background()); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("%s: a stream: %v", name, err)
		}
		if took := time.Since(start); s.calls.Load() != 2 || took > 5*time.Second {
			t.Errorf("%s: %d calls were sent, it took %v to say so", name, s.calls.Load(), took)
		}
	}
}

// A call whose context ends while it is granted is not sent, and its units are given back.
func TestACallThatEndsWhileItIsGrantedIsNotSent(t *testing.T) {
	l := newLimiter(t)
	rule := newRule(t, l, "hourly", limit.PerHour(10))
	var cancel context.CancelFunc
	stop, ok := inspect.Of(l).Watch(func(string, string, bool) { cancel() }) // the decision is made
	if !ok {
		t.Fatal("the limiter is watched already")
	}
	defer stop()
	sent := 0
	for _, longest := range []time.Duration{0, time.Minute} {
		c, err := NewClient(rule, MaxWait(longest), ClientKey(func(context.Context, string) string { return "all" }))
		if err != nil {
			t.Fatal(err)
		}
		for what, call := range map[string]func(ctx context.Context) error{
			"a call": func(ctx context.Context) error {
				return c.Unary(ctx, "method", nil, nil, nil, func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
					sent++
					return nil
				})
			},
			"a stream": func(ctx context.Context) error {
				_, err := c.Stream(ctx, nil, nil, "method", func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption) (grpc.ClientStream, error) {
					sent++
					return nil, nil
				})
				return err
			},
		} {
			var ctx context.Context
			ctx, cancel = context.WithCancel(t.Context())
			defer cancel()
			if err := call(ctx); status.Code(err) != codes.Canceled || sent != 0 {
				t.Errorf("%s: %v, %d were sent", what, err, sent)
			}
			if got := used(t, rule, "all"); got != 0 {
				t.Errorf("%s: nothing was sent, %d are charged", what, got)
			}
		}
	}
}

// A mistake of the client program is reported to the program with its cause, and the call is not sent.
func TestClientsAreToldTheirMistakes(t *testing.T) {
	l := newLimiter(t)
	cost := int64(0)
	c, err := NewClient(newRule(t, l, "hourly", limit.PerHour(10)), ClientCost(func(context.Context, string, any) int64 { return cost }))
	if err != nil {
		t.Fatal(err)
	}
	client, s := serve(t, nil, grpc.WithChainUnaryInterceptor(c.Unary), grpc.WithChainStreamInterceptor(c.Stream))
	for _, cost = range []int64{0, 11} {
		_, unary := client.EmptyCall(t.Context(), &pb.Empty{})
		_, stream := client.FullDuplexCall(t.Context())
		for _, err := range []error{unary, stream} {
			if status.Code(err) != codes.Internal || !strings.Contains(err.Error(), "cost") {
				t.Errorf("cost %d: %v", cost, err)
			}
		}
	}
	cost = 1
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = client.EmptyCall(t.Context(), &pb.Empty{})
	if code, retry, _ := details(err); code != codes.Unavailable || retry == nil || !strings.Contains(err.Error(), limit.ErrClosed.Error()) {
		t.Errorf("closed: %v", err)
	}
	if s.calls.Load() != 0 {
		t.Errorf("%d calls were sent", s.calls.Load())
	}
}

func TestClientWaitsForRoom(t *testing.T) {
	const window = 200 * time.Millisecond
	l := newLimiter(t)
	c, err := NewClient(newRule(t, l, "quick", limit.Per(1, window)))
	if err != nil {
		t.Fatal(err)
	}
	client, s := serve(t, nil, grpc.WithChainUnaryInterceptor(c.Unary))
	start := time.Now()
	for range 4 {
		if _, err := client.EmptyCall(context.Background(), &pb.Empty{}); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(start); took < 3*window-window/2 || s.calls.Load() != 4 {
		t.Errorf("%d calls, 1 per %v, took %v", s.calls.Load(), window, took)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := c.wait(ctx, "/a", nil); status.Code(err) != codes.Canceled {
		t.Errorf("cancelled: %v", err)
	}
}

// The errors of a handler, of an upstream and of a stream's end are passed on unchanged.
func TestErrorsArePassedOn(t *testing.T) {
	l, failed, ctx := newLimiter(t), status.Error(codes.NotFound, "no such item"), t.Context()
	rule := newRule(t, l, "api", limit.PerHour(10))
	server := newServer(t, l, Limit(rule, Everyone, says(1)))
	_, unary := server.Unary(ctx, request, &grpc.UnaryServerInfo{}, func(context.Context, any) (any, error) { return nil, failed })
	stream := server.Stream(nil, &messages{ctx: ctx}, &grpc.StreamServerInfo{}, func(_ any, stream grpc.ServerStream) error {
		if err := stream.RecvMsg(&pb.SimpleRequest{}); err != io.EOF {
			t.Errorf("a stream ends with %v", err)
		}
		return failed
	})
	client, err := NewClient(rule)
	if err != nil {
		t.Fatal(err)
	}
	call := client.Unary(ctx, "/a/Unary", request, nil, nil, func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { return failed })
	_, open := client.Stream(ctx, nil, nil, "/a/Stream", func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption) (grpc.ClientStream, error) {
		return nil, failed
	})
	for what, err := range map[string]error{"a server's call": unary, "a server's stream": stream, "a client's call": call, "a client's stream": open} {
		if err != failed {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A peer's key is its address; for IPv6, it is the network. A peer without an IP address has no key.
func TestPeer(t *testing.T) {
	for want, addr := range map[string]net.Addr{
		"192.0.2.7":         &net.TCPAddr{IP: net.ParseIP("192.0.2.7"), Port: 1},
		"2001:db8:1:2::/64": &net.TCPAddr{IP: net.ParseIP("2001:db8:1:2::3"), Port: 1},
		"192.0.2.8":         &net.UDPAddr{IP: net.ParseIP("192.0.2.8"), Port: 1}, // as with QUIC
		"":                  &net.UnixAddr{Name: "@"},
	} {
		if got := Peer(peer.NewContext(t.Context(), &peer.Peer{Addr: addr}), "/a/b"); got != want {
			t.Errorf("%v: %q, want %q", addr, got, want)
		}
	}
	for _, ctx := range []context.Context{t.Context(), peer.NewContext(t.Context(), &peer.Peer{})} {
		if got := Peer(ctx, "/a/b"); got != "" {
			t.Errorf("no address: %q", got)
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	l := newLimiter(t)
	rule := newRule(t, l, "api", limit.PerHour(10))
	ok := Limit(rule, Everyone)
	for name, options := range map[string][]Option{
		"no limit": {}, "nil rule": {Limit(nil, Everyone)}, "nil key": {Limit(rule, nil)}, "rule twice": {ok, ok},
		"nil When": {Limit(rule, Everyone, When(nil))}, "nil Cost": {Limit(rule, Everyone, Cost(nil))},
		"nil RuleFor": {Limit(rule, Everyone, RuleFor(nil))}, "nil OnError": {ok, OnError(nil)},
		"nil RuleForKey": {Limit(rule, Everyone, RuleForKey(nil))},
		"two rules":      {Limit(rule, Everyone, RuleForKey(func(string) *tiered.Rule { return rule }), RuleForKey(func(string) *tiered.Rule { return rule }))},
		"rules by key":   {Limit(rule, Everyone, RuleForKey(func(string) *tiered.Rule { return rule }), RuleFor(func(context.Context, string) *tiered.Rule { return rule }))},
		"messages":       {Limit(newRule(t, l, "slots", limit.Concurrent(1)), Everyone, PerMessage())},
	} {
		if name != "no limit" { // in addition to a valid limit
			options = append(options, Limit(newRule(t, l, "other", limit.PerHour(10)), Everyone))
		}
		if _, err := NewServer(l, options...); !errors.Is(err, limit.ErrInvalidOption) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	for want, option := range map[string]Option{
		`the rule of limit "api" belongs to another limiter`:                              Limit(newRule(t, newLimiter(t), "api", limit.PerHour(10)), Everyone),
		`the key of limit "api", or a part of that key, is nil: functions that make keys`: Limit(rule, FirstOf(Everyone, Join(Peer, Principal(nil)))),
		"the rule of limit 1 is nil":                                                      Limit(nil, Everyone),
	} {
		if _, err := NewServer(l, option); !errors.Is(err, limit.ErrInvalidOption) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v", want, err)
		}
	}
	for name, key := range map[string]KeyFunc{"Join": Join(), "FirstOf": FirstOf()} {
		if _, err := NewServer(l, Limit(rule, key)); !errors.Is(err, limit.ErrInvalidOption) {
			t.Errorf("%s without arguments: error %v", name, err)
		}
	}
	for _, name := range []string{"", " ", "X Client", "ü"} { // all requests would have the same, empty key
		for _, key := range []KeyFunc{Metadata(name), FirstOf(Metadata(name), Everyone)} {
			if _, err := NewServer(l, Limit(rule, key)); !errors.Is(err, limit.ErrInvalidOption) {
				t.Errorf("Metadata %q: error %v", name, err)
			}
		}
	}
	if _, err := NewServer(nil, ok); !errors.Is(err, limit.ErrInvalidOption) {
		t.Errorf("nil limiter: error %v", err)
	}
	for name, option := range map[string]ClientOption{"wait": MaxWait(-1), "key": ClientKey(nil), "cost": ClientCost(nil)} {
		if _, err := NewClient(rule, option); !errors.Is(err, limit.ErrInvalidOption) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if _, err := NewClient(newRule(t, l, "in-flight", limit.Concurrent(1))); !errors.Is(err, limit.ErrInvalidOption) {
		t.Errorf("a rule of what is in flight: error %v", err)
	}
	if _, err := NewClient(nil); !errors.Is(err, limit.ErrInvalidOption) {
		t.Errorf("nil rule: error %v", err)
	}
	if _, err := NewClient(new(tiered.Rule)); !errors.Is(err, limit.ErrInvalidOption) {
		t.Errorf("a rule that no limiter made: error %v", err)
	}
}

// While a Redis that has lost its data, and is back, decides together with this instance's share, a rule
// that denies in an outage lets calls in again. A denial then means that the key has used up its part.
func TestDenialsAfterAnOutageAreNoOutage(t *testing.T) {
	server := redistest.Start(t)
	l := newLimiterOn(t, server.Client(t), redistest.Prefix())
	client, _ := serve(t, newServer(t, l, Limit(newRule(t, l, "login", limit.PerHour(3), tiered.OnOutage(tiered.Deny)), Everyone)))
	server.Restart()
	redistest.Eventually(t, "the limiter settles", func() bool { return l.State() == tiered.Settling })
	call := func() codes.Code {
		_, err := client.EmptyCall(t.Context(), &pb.Empty{})
		return status.Code(err)
	}
	redistest.Eventually(t, "a call is let in", func() bool { return call() == codes.OK })
	for range 3 {
		if code := call(); code != codes.OK && code != codes.ResourceExhausted {
			t.Errorf("while the limiter settles: %v", code)
		}
	}
	if code := call(); code != codes.ResourceExhausted || l.State() != tiered.Settling {
		t.Errorf("above the limit: %v, %v", code, l.State())
	}
}

// All names under which gRPC can deliver metadata are accepted, also those of HTTP/2 itself.
func TestNamesOfMetadata(t *testing.T) {
	for _, name := range []string{"x-api-key", "X-Api-Key", "tenant_2", "a.b", ":authority", "z", "Z", "0", "9"} {
		key := Metadata(name)
		if key == nil {
			t.Errorf("%q is refused", name)
			continue
		}
		ctx := metadata.NewIncomingContext(t.Context(), metadata.MD{strings.ToLower(name): {"first", "second"}})
		if got := key(ctx, "/a/b"); got != "first" {
			t.Errorf("%q: the key is %q", name, got)
		}
	}
	for _, name := range []string{":", "a:b", "a/b", "a{", "a[", "a@", "a`"} {
		if Metadata(name) != nil {
			t.Errorf("%q is accepted", name)
		}
	}
}

// A limit on a dry run neither denies calls nor hides the denial of another limit, in whatever order they are stated.
func TestDryRunsDenyNothing(t *testing.T) {
	l := newLimiter(t)
	dry := newRule(t, l, "dry", limit.PerHour(1), tiered.DryRun())
	real := newRule(t, l, "real", limit.PerHour(3))
	client, s := serve(t, newServer(t, l, Limit(dry, Everyone), Limit(real, Everyone)))
	for range 3 {
		if _, err := client.EmptyCall(t.Context(), &pb.Empty{}); err != nil {
			t.Fatal(err)
		}
	}
	_, err := client.EmptyCall(t.Context(), &pb.Empty{})
	if code, _, violated := details(err); code != codes.ResourceExhausted || !slices.Equal(violated, []string{"real"}) {
		t.Errorf("%v, violated %v", err, violated)
	}
	if s.calls.Load() != 3 {
		t.Errorf("%d calls reached the service", s.calls.Load())
	}
}

// A call without the first key gets the second, and not an empty one that it would share with others.
func TestFirstOfSkipsMissingKeys(t *testing.T) {
	key := FirstOf(Metadata("tenant"), Method)
	named := metadata.NewIncomingContext(t.Context(), metadata.MD{"tenant": {"a"}})
	if got := key(named, "/a/b"); got != "0:a" {
		t.Errorf("with a tenant: %q", got)
	}
	if got := key(t.Context(), "/a/b"); got != "1:/a/b" {
		t.Errorf("without a tenant: %q", got)
	}
	if got := FirstOf(Metadata("tenant"))(t.Context(), "/a/b"); got != "" {
		t.Errorf("without any key: %q", got)
	}
}

// Messages are charged also if a limit that is not PerMessage is stated after the one that is.
func TestMessagesAreChargedWhateverTheOrderOfLimits(t *testing.T) {
	l := newLimiter(t)
	rule := newRule(t, l, "messages", limit.PerHour(3))
	server := newServer(t, l, Limit(rule, Everyone, PerMessage()), Limit(newRule(t, l, "streams", limit.PerHour(9)), Everyone))
	err := server.Stream(nil, &messages{ctx: t.Context(), left: 3}, &grpc.StreamServerInfo{FullMethod: "/a/b"}, func(_ any, stream grpc.ServerStream) error {
		for i := range 2 { // after the opening
			if err := stream.RecvMsg(&pb.SimpleRequest{}); err != nil {
				t.Errorf("message %d: %v", i, err)
			}
		}
		return stream.RecvMsg(&pb.SimpleRequest{})
	})
	if code, _, violated := details(err); code != codes.ResourceExhausted || !slices.Equal(violated, []string{"messages"}) {
		t.Errorf("%v, violated %v", err, violated)
	}
}
