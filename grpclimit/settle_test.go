package grpclimit

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/protobuf/proto"

	"github.com/tierlimit/tierlimit/embedded"
	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// used returns the number of units of a limit that a key has used.
func used(t *testing.T, rule *tiered.Rule, key string) int64 {
	t.Helper()
	d, err := rule.Peek(context.Background(), key, 1)
	if err != nil {
		t.Fatal(err)
	}
	return rule.Limit().Quota() - d.Remaining
}

func reserve(units int64) LimitOption {
	return Cost(func(context.Context, string, any) int64 { return units })
}

// says returns an option that settles a call with the given number of units, however the call ended.
func says(units int64) LimitOption {
	return Settle(func(context.Context, string, Result) int64 { return units })
}

// reply is a message of some 20 bytes, and request one of some 10.
var (
	reply   = &pb.SimpleResponse{Payload: &pb.Payload{Body: make([]byte, 16)}}
	request = &pb.SimpleRequest{Payload: &pb.Payload{Body: make([]byte, 6)}}
)

// messages is a stream on which left requests arrive.
type messages struct {
	grpc.ServerStream
	ctx  context.Context
	left int
}

func (s *messages) Context() context.Context { return s.ctx }
func (s *messages) SendMsg(any) error        { return nil }
func (s *messages) RecvMsg(message any) error {
	if s.left--; s.left < 0 {
		return io.EOF
	}
	proto.Merge(message.(proto.Message), request)
	return nil
}

// handle is a handler of a call. A unary call ends with its result; a stream echoes three messages
// first.
type handle func(ctx context.Context) error

func (h handle) unary(server *Server, ctx context.Context) {
	defer func() { _ = recover() }()
	_, _ = server.Unary(ctx, request, &grpc.UnaryServerInfo{FullMethod: "/a/Unary"}, func(ctx context.Context, _ any) (any, error) {
		return reply, h(ctx)
	})
}

func (h handle) stream(server *Server, ctx context.Context) {
	defer func() { _ = recover() }()
	_ = server.Stream(nil, &messages{ctx: ctx, left: 3}, &grpc.StreamServerInfo{FullMethod: "/a/Stream"}, func(_ any, stream grpc.ServerStream) error {
		for stream.RecvMsg(&pb.SimpleRequest{}) == nil {
			_ = stream.SendMsg(reply)
		}
		return h(stream.Context())
	})
}

type cancelKey struct{}

func fine(context.Context) error { return nil }

func TestSettleChargesWhatACallTook(t *testing.T) {
	l := newLimiter(t)
	in, out := int64(proto.Size(request)), int64(proto.Size(reply))
	if in == 0 || out == 0 {
		t.Fatal("messages of no bytes")
	}
	bit := func(set bool, value int64) int64 {
		if set {
			return value
		}
		return 0
	}
	outcome := Settle(func(_ context.Context, _ string, r Result) int64 {
		return 1 + bit(r.Err != nil, 2) + bit(r.Panicked, 4) + bit(r.Reply != nil, 8)
	})
	bytes := Settle(func(_ context.Context, _ string, r Result) int64 { return r.Sent.Bytes + 3*r.Received.Bytes })
	counts := Settle(func(_ context.Context, _ string, r Result) int64 { return r.Sent.Messages + 30*r.Received.Messages })
	for _, c := range []struct {
		name          string
		handle        handle
		option        LimitOption
		unary, stream int64
	}{
		{"as reserved", fine, says(10), 10, 10},
		{"less", fine, says(3), 3, 3},
		{"nothing", fine, says(0), 0, 0},
		{"negative", fine, says(-5), 0, 0},
		{"more", fine, says(25), 25, 25},
		{"more than there is", fine, says(5000), 1000, 1000},
		{"success", fine, outcome, 9, 1},
		{"failure", func(context.Context) error { return errors.New("failed") }, outcome, 11, 3},
		{"panic", func(context.Context) error { panic("on purpose") }, outcome, 5, 5},
		{"bytes", fine, bytes, out + 3*in, 3 * (out + 3*in)},
		{"bytes until a panic", func(context.Context) error { panic("on purpose") }, bytes, 3 * in, 3 * (out + 3*in)},
		{"messages", fine, counts, 31, 93},
		{"messages of a failure", func(context.Context) error { return errors.New("failed") }, counts, 30, 93},
		{"handler says nothing", fine, HandlerCost(), 10, 10},
		{"handler says less", func(ctx context.Context) error { SetCost(ctx, 4); return nil }, HandlerCost(), 4, 4},
		{"handler says more, and panics", func(ctx context.Context) error { SetCost(ctx, 5); SetCost(ctx, 50); panic("on purpose") }, HandlerCost(), 50, 50},
		{"handler says a negative cost", func(ctx context.Context) error { SetCost(ctx, -1); return nil }, HandlerCost(), 0, 0},
		{"client goes away", func(ctx context.Context) error { ctx.Value(cancelKey{}).(context.CancelFunc)(); return nil }, says(4), 4, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			rule := newRule(t, l, "settled", limit.PerHour(1000))
			other := newRule(t, l, "other", limit.PerHour(1000))
			server := newServer(t, l, Limit(rule, Method, reserve(10), c.option), Limit(other, Method))
			for call, want := range map[string]int64{"/a/Unary": c.unary, "/a/Stream": c.stream} {
				for _, r := range []*tiered.Rule{rule, other} {
					if err := r.Reset(context.Background(), call); err != nil {
						t.Fatal(err)
					}
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				ctx = context.WithValue(ctx, cancelKey{}, cancel)
				if call == "/a/Unary" {
					c.handle.unary(server, ctx)
				} else {
					c.handle.stream(server, ctx)
				}
				if got := used(t, rule, call); got != want {
					t.Errorf("%s: %d units are charged, want %d", call, got, want)
				}
				if got := used(t, other, call); got != 1 {
					t.Errorf("%s: of the limit that is not settled %d units are charged", call, got)
				}
			}
		})
	}
}

// When a call ends, the time by which its decision had to be made (tiered.DecideBy) is long over. The
// unused rest is given back in spite of that.
func TestSettleDoesNotHeedDecideBy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := embedded.Open(tiered.LedgerKeys(100), tiered.RememberDenials(100))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		rule := newRule(t, l, "rule", limit.PerHour(100))
		server := newServer(t, l, Limit(rule, Everyone, Cost(func(context.Context, string, any) int64 { return 10 }), says(3)))
		handle(func(context.Context) error {
			time.Sleep(time.Minute)
			return nil
		}).unary(server, tiered.DecideBy(t.Context(), time.Now().Add(time.Second)))
		if got := used(t, rule, "all"); got != 3 {
			t.Errorf("%d units are charged", got)
		}
	})
}

// Calls may be cancelled while Redis decides about them. Their handlers are called nevertheless, and their
// charges are corrected.
func TestSettleOfCallsThatAreCancelledMeanwhile(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		l := newLimiterOn(t, bubble.Client(t), "test")
		settled, said := newRule(t, l, "settled", limit.PerHour(100)), newRule(t, l, "said", limit.PerHour(100))
		server := newServer(t, l, Limit(settled, Everyone, reserve(10), says(3)), Limit(said, Everyone, reserve(10), HandlerCost()))
		four := handle(func(ctx context.Context) error { SetCost(ctx, 4); return nil })
		ctx, cancel := context.WithCancel(t.Context())
		bubble.Late.Store(int64(10 * time.Millisecond))
		time.AfterFunc(15*time.Millisecond, cancel) // while all but the first share the second trip
		var calls sync.WaitGroup
		for range 3 {
			calls.Go(func() { four.unary(server, ctx) })
			calls.Go(func() { four.stream(server, ctx) })
		}
		calls.Wait()
		if used(t, settled, "all") != 6*3 || used(t, said, "all") != 6*4 {
			t.Errorf("%d and %d units are charged", used(t, settled, "all"), used(t, said, "all"))
		}
	})
}

// Units that a call used beyond the free ones are not lost. They are debt, for which the next calls
// wait although other units have come back.
func TestSettleMakesDebtOfWhatDoesNotFit(t *testing.T) {
	l := newLimiter(t)
	for _, a := range limit.Algorithms() {
		rule := newRule(t, l, a.Name(), limit.PerHour(100).WithBurst(100), tiered.Use(a))
		other, err := rule.AllowN(t.Context(), "all", 60)
		if err != nil || !other.Allowed {
			t.Fatalf("%+v, %v", other, err)
		}
		handle(fine).unary(newServer(t, l, Limit(rule, Everyone, reserve(10), says(100))), t.Context())
		if err := rule.Refund(t.Context(), "all", &other, 60); err != nil {
			t.Fatal(err)
		}
		if got := used(t, rule, "all"); got != 100 {
			t.Errorf("%v: %d units are charged, the call took 100", a, got)
		}
	}
}

func TestSettlingIsChecked(t *testing.T) {
	l := newLimiter(t)
	rule, inFlight := newRule(t, l, "api", limit.PerHour(10)), newRule(t, l, "in-flight", limit.Concurrent(1))
	for name, option := range map[string]Option{
		"nil":                        Limit(rule, Everyone, Settle(nil)),
		"Settle and HandlerCost":     Limit(rule, Everyone, says(1), HandlerCost()),
		"Settle and PerMessage":      Limit(rule, Everyone, says(1), PerMessage()),
		"HandlerCost and PerMessage": Limit(rule, Everyone, HandlerCost(), PerMessage()),
		"Settle in flight":           Limit(inFlight, Everyone, says(1)),
		"HandlerCost in flight":      Limit(inFlight, Everyone, HandlerCost()),
		"nil Logger":                 Logger(nil),
	} {
		if _, err := NewServer(l, Limit(newRule(t, l, "other", limit.PerHour(10)), Everyone), option); !errors.Is(err, limit.ErrInvalidOption) {
			t.Errorf("%s: error %v, want ErrInvalidOption", name, err)
		}
	}
	if _, err := NewServer(l, Limit(rule, Everyone, says(1)), Logger(slog.New(slog.DiscardHandler))); err != nil {
		t.Error(err)
	}
	none := newServer(t, l, Limit(newRule(t, l, "settled", limit.PerHour(10)), Everyone, says(1)), Limit(rule, Everyone, HandlerCost(), When(func(context.Context, string) bool { return false })))
	handle(func(ctx context.Context) error {
		if SetCost(ctx, 5) {
			t.Error("a cost was taken that no limit for the call asks for")
		}
		return nil
	}).unary(none, t.Context())
}
