package grpclimit

import (
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"

	"github.com/tierlimit/tierlimit/internal/admission"
	"github.com/tierlimit/tierlimit/internal/option"
)

// Result is what [Settle] is told of a call that is over.
type Result struct {
	// Reply is the handler's reply to a unary call; nil for streams.
	Reply any
	// Err is what the handler returned, nil for success: its status is status.Code(Err).
	Err error
	// Panicked says that the handler did not return.
	Panicked bool
	// Sent is what was sent to the client, and Received what came from it, request and reply of a
	// unary call included.
	Sent, Received Volume
}

// Volume is an amount of messages. Bytes are those of messages of Protocol Buffers, before compression
// and without gRPC's frames; other messages count as 0 bytes.
type Volume struct{ Messages, Bytes int64 }

// Settle corrects the charge when a call is over, a stream's that of its opening: the call's [Cost] is
// reserved before, and the function says what it took in the end. What was reserved too much is
// refunded, down to nothing at all. What was reserved too little is charged whether or not it fits: it
// is debt, for which the next calls wait (see [tiered.Rule.ChargeUsed]). Reserve the most that a call
// may take where the limit must hold for it, too.
//
// It costs a trip to Redis before the client is sent the status, if there is something to correct, and
// is not cut short by a client that goes away. If Redis cannot be reached what was reserved too much
// stays charged there, and what was reserved too little is charged later. A limit with [PerMessage], or
// of a rule of [limit.Concurrent], cannot be settled.
func Settle(actual func(ctx context.Context, method string, result Result) int64) LimitOption {
	return func(l *rateLimit) error {
		l.settle = actual
		return option.NotNil(actual != nil, "Settle")
	}
}

// HandlerCost has the handler say what the call took, by [SetCost]: the call's [Cost] is reserved
// before, and corrected when the handler has returned, as by [Settle]. If the handler says nothing the
// reservation stands. A limit has either this or Settle.
func HandlerCost() LimitOption {
	return func(l *rateLimit) error {
		l.byHandler = true
		return nil
	}
}

// SetCost says what the call whose context it is took, for its limits with [HandlerCost]; the last call
// counts, and less than 0 counts as 0. It does nothing, and returns false, if there are none. It is
// safe for concurrent use, until the handler has returned.
func SetCost(ctx context.Context, units int64) bool { return admission.SetCost(ctx, units) }

// checkSettling returns what is wrong with how a limit is settled.
func (l *rateLimit) checkSettling() error {
	name := l.Rule.Name()
	switch {
	case l.settle == nil && !l.byHandler:
		return nil
	case l.settle != nil && l.byHandler:
		return option.Invalid("limit %q has both Settle and HandlerCost, state one of them", name)
	case l.perMessage:
		return option.Invalid("limit %q has Settle or HandlerCost, but is PerMessage: what a message costs is known before", name)
	case l.Rule.Limit().IsConcurrent():
		return option.Invalid("limit %q has Settle or HandlerCost, but its units are given back when the handler returns", name)
	}
	return nil
}

// serveAndSettle serves an admitted call and settles its charges, also if the handler panics or the
// client goes away. serve calls the handler with a context and says how the call ended.
func (s *Server) serveAndSettle(ctx context.Context, method string, a *admitted, serve func(ctx context.Context, result *Result)) {
	var said *admission.SaidCost
	for _, l := range a.limits {
		if l.byHandler && said == nil {
			ctx, said = admission.AskCost(ctx)
		}
	}
	began, result := time.Now(), Result{Panicked: true}
	defer func() {
		ctx := context.WithoutCancel(ctx)
		for i, l := range a.limits {
			var actual int64
			switch known := false; {
			case l.settle != nil:
				actual = l.settle(ctx, method, result)
			case l.byHandler:
				if actual, known = said.Units(); !known {
					continue
				}
			default:
				continue
			}
			if err := admission.Settle(ctx, a.requests[i], &a.decisions[i], actual, time.Since(began)); err != nil {
				s.log.Warn("a charge could not be corrected", "rule", a.requests[i].Rule.Name(), "error", err)
			}
		}
	}()
	serve(ctx, &result)
	result.Panicked = false
}

// settledStream counts what goes over a stream, and has a context of its own.
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

// volume is a Volume that goroutines add to.
type volume struct{ messages, bytes atomic.Int64 }

func (v *volume) add(message any) {
	v.messages.Add(1)
	v.bytes.Add(size(message))
}

func (v *volume) total() Volume { return Volume{v.messages.Load(), v.bytes.Load()} }

func volumeOf(message any) Volume { return Volume{1, size(message)} }

// size is a message's length in bytes, if it is one of Protocol Buffers.
func size(message any) int64 {
	switch m := message.(type) {
	case proto.Message:
		return int64(proto.Size(m))
	case protoadapt.MessageV1:
		return int64(proto.Size(protoadapt.MessageV2Of(m)))
	}
	return 0
}
