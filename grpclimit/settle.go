package grpclimit

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"

	"github.com/tierlimit/tierlimit/internal/admission"
	"github.com/tierlimit/tierlimit/internal/option"
)

// Result describes a finished call to the function of [Settle].
type Result struct {
	// Reply is the handler's reply to a unary call; nil for streams.
	Reply any
	// Err is what the handler returned, nil for success: its status is status.Code(Err).
	Err error
	// Panicked reports that the handler did not return.
	Panicked bool
	// Sent is the volume that was sent to the client, and Received the volume that came from the
	// client. They include the reply and the request of a unary call.
	Sent, Received Volume
}

// Volume is an amount of messages. Bytes is the size of Protocol Buffers messages, before
// compression and without gRPC's frames; other messages count as 0 bytes.
type Volume struct{ Messages, Bytes int64 }

// Settle corrects the charge when a call is over; for a stream, the charge of its opening. The call's
// [Cost] is reserved before the handler runs, and the function returns what the call used in the end.
// If the call used less than was reserved, the rest is refunded, even all of it; under GCRA, less comes
// back the longer the call took (see [tiered.Rule.Refund]). If the call used more, the excess is
// charged whether or not it fits: it is debt, for which later calls wait (see
// [tiered.Rule.ChargeUsed]). If the limit must never be exceeded, reserve the most that a call may use.
//
// A correction takes a trip to Redis before the client is sent the status, even if the client has gone.
// If Redis cannot be reached, an unused rest stays charged there, and an excess is charged later, unless
// its answer was lost (see [tiered.Rule.ChargeUsed]). A limit with [PerMessage], or of a rule of
// [limit.Concurrent], cannot be settled.
//
// If a call ends while Redis decides about it, and a limit of the server has Settle or [HandlerCost], the
// decision is awaited, and the handler is called with the call's ended context. Otherwise what was reserved
// could stay charged.
func Settle(actual func(ctx context.Context, method string, result Result) int64) LimitOption {
	return option.Set(func(l *rateLimit) {
		l.Settle = func(c call, result Result) int64 { return actual(c.ctx, c.method, result) }
	}, actual != nil, "Settle was given nil")
}

// HandlerCost lets the handler set what the call used, with [SetCost]. The call's [Cost] is reserved
// before the handler runs, and corrected when the handler has returned, as with [Settle]. If the
// handler does not call SetCost, the reservation stays charged. A limit can have either HandlerCost or
// Settle.
func HandlerCost() LimitOption {
	return option.Always(func(l *rateLimit) { l.ByHandler = true })
}

// SetCost sets the units that the call of this context used, for its limits with [HandlerCost]. The
// last SetCost counts, and units below 0 count as 0. If the call has no such limits, SetCost does
// nothing and returns false. It is safe for concurrent use until the handler has returned.
func SetCost(ctx context.Context, units int64) bool { return admission.SetCost(ctx, units) }

// serveAndSettle serves an admitted call and settles its charges, even if the handler panics or the
// client goes away. serve calls the handler with the given context and stores in result how the call
// ended.
func (s *Server) serveAndSettle(ctx context.Context, method string, a *admitted, serve func(ctx context.Context, result *Result)) {
	var said *admission.ReportedCost
	if slices.ContainsFunc(a.limits, func(l *rateLimit) bool { return l.ByHandler }) {
		ctx, said = admission.WithReportedCost(ctx)
	}
	began, result := time.Now(), Result{Panicked: true}
	defer func() {
		ctx := admission.Afterwards(ctx)
		for i, l := range a.limits {
			used, known := l.Used(call{ctx: ctx, method: method}, result, said)
			if !known {
				continue
			}
			if err := admission.Settle(ctx, a.requests[i], &a.decisions[i], used, time.Since(began)); err != nil {
				s.log.Warn("a charge could not be corrected", "rule", a.requests[i].Rule.Name(), "error", err)
			}
		}
	}()
	serve(ctx, &result)
	result.Panicked = false
}

// settledStream counts the messages of a stream. Its Context is ctx.
type settledStream struct {
	grpc.ServerStream
	ctx            context.Context
	sent, received volume
}

func (s *settledStream) Context() context.Context { return s.ctx }

func (s *settledStream) SendMsg(message any) error {
	err := s.ServerStream.SendMsg(message)
	if err == nil {
		s.sent.add(message)
	}
	return err
}

func (s *settledStream) RecvMsg(message any) error {
	err := s.ServerStream.RecvMsg(message)
	if err == nil {
		s.received.add(message)
	}
	return err
}

// volume is a Volume to which goroutines can add.
type volume struct{ messages, bytes atomic.Int64 }

func (v *volume) add(message any) {
	v.messages.Add(1)
	v.bytes.Add(size(message))
}

func (v *volume) total() Volume { return Volume{v.messages.Load(), v.bytes.Load()} }

func volumeOf(message any) Volume { return Volume{1, size(message)} }

// size returns a message's length in bytes, or 0 if it is not a Protocol Buffers message.
func size(message any) int64 {
	switch m := message.(type) {
	case proto.Message:
		return int64(proto.Size(m))
	case protoadapt.MessageV1:
		return int64(proto.Size(protoadapt.MessageV2Of(m)))
	}
	return 0
}
