package grpclimit

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tierlimit/tierlimit/limit"
)

// stream is a stream of no messages.
type stream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s stream) Context() context.Context { return s.ctx }

// Calls in flight, and streams until they end: while a handler runs nobody else is let in.
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
			if err := call(func() { t.Error("it was let in") }); status.Code(err) != codes.ResourceExhausted {
				t.Errorf("while another is in flight: %v", err)
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
