package grpclimit

import (
	"context"
	"errors"
	"io"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// stream is a stream without messages.
type stream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s stream) Context() context.Context { return s.ctx }

// A call in flight, and a stream until it ends, holds its unit: while a handler runs, nobody else is
// let in.
func TestCallsInFlight(t *testing.T) {
	l := newLimiter(t)
	rule := newRule(t, l, "in-flight", limit.Concurrent(1))
	server, err := NewServer(l, Limit(rule, func(context.Context, string) string { return "everyone" }))
	if err != nil {
		t.Fatal(err)
	}
	ctx, failed := t.Context(), errors.New("failed")
	unary := func(within func()) error {
		_, err := server.Unary(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/a/B"}, func(context.Context, any) (any, error) {
			within()
			return nil, failed
		})
		return err
	}
	streamed := func(within func()) error {
		return server.Stream(nil, stream{ctx: ctx}, &grpc.StreamServerInfo{FullMethod: "/a/C"}, func(any, grpc.ServerStream) error {
			within()
			return failed
		})
	}
	full := func() {
		t.Helper()
		for _, call := range []func(func()) error{unary, streamed} {
			err := call(func() { t.Error("it was let in") })
			if status.Code(err) != codes.ResourceExhausted {
				t.Errorf("while another is in flight: %v", err)
			}
			for _, detail := range status.Convert(err).Details() {
				if quota, ok := detail.(*errdetails.QuotaFailure); ok && quota.GetViolations()[0].GetDescription() != "the concurrency limit of 1 is reached" {
					t.Errorf("the client is told %v", quota)
				}
			}
		}
	}
	for range 2 {
		for _, call := range []func(func()) error{unary, streamed} {
			if err := call(full); err != failed {
				t.Errorf("alone: %v", err)
			}
		}
	}
	if _, err := NewServer(l, Limit(rule, func(context.Context, string) string { return "k" }, PerMessage())); !errors.Is(err, limit.ErrInvalidOption) {
		t.Errorf("PerMessage: %v", err)
	}
}

// RuleFor may choose a concurrency limit even for a limit that is PerMessage. The stream holds its
// units until it ends. Messages take no units, because nothing would give them back.
func TestMessagesHoldNothing(t *testing.T) {
	l := newLimiter(t)
	rate, inFlight := newRule(t, l, "rate", limit.PerHour(100)), newRule(t, l, "in-flight", limit.Concurrent(2))
	client, _ := serve(t, newServer(t, l, Limit(rate, Everyone, PerMessage(),
		RuleFor(func(context.Context, string) *tiered.Rule { return inFlight }))))
	held := func() int64 {
		t.Helper()
		d, err := inFlight.Peek(t.Context(), "all", 1)
		if err != nil {
			t.Fatal(err)
		}
		return 2 - d.Remaining
	}
	stream, err := client.FullDuplexCall(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if err := stream.Send(&pb.StreamingOutputCallRequest{}); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
		if n := held(); n != 1 {
			t.Errorf("%d units are held after message %d", n, i)
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Fatalf("the stream's end: %v", err)
	}
	if n := held(); n != 0 {
		t.Errorf("%d units are held after the stream", n)
	}
}
