package grpclimit

import (
	"context"

	"google.golang.org/grpc"

	"github.com/tierlimit/tierlimit/internal/admission"
	"github.com/tierlimit/tierlimit/internal/option"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// Server limits calls. Its methods Unary and Stream are interceptors. Use both: without one of them,
// calls of that kind are not limited. A Server is immutable and safe for concurrent use.
type Server struct {
	limiter    *tiered.Limiter
	limits     []*rateLimit
	names      admission.Names // of the limits' rules
	perMessage bool            // at least one limit is PerMessage
	settles    bool            // at least one limit has Settle or HandlerCost
	log        *admission.Log
	onError    func(context.Context, string, error) error
}

// NewServer returns interceptors that limit calls. It needs at least one [Limit], and the rules of all
// limits must belong to the limiter. Errors wrap [limit.ErrInvalidOption].
func NewServer(limiter *tiered.Limiter, options ...Option) (*Server, error) {
	if limiter == nil {
		return nil, option.Invalid("the limiter is nil")
	}
	s := &Server{limiter: limiter, log: admission.NewLog("grpclimit: ")}
	s.onError = s.answerError
	if err := option.Apply(s, options); err != nil {
		return nil, err
	}
	if len(s.limits) == 0 {
		return nil, option.Invalid("no Limit was given, a server needs at least one")
	}
	return s, nil
}

// Unary is a grpc.UnaryServerInterceptor. It holds the units of a rule with a limit of
// [limit.Concurrent] until the handler returns, as Stream does.
func (s *Server) Unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (reply any, err error) {
	a, err := s.admit(ctx, info.FullMethod, request, false)
	if err != nil {
		return nil, err
	}
	if a.grants != nil {
		defer a.grants.End(ctx)
	}
	if !s.settles {
		return handler(ctx, request)
	}
	s.serveAndSettle(ctx, info.FullMethod, &a, func(ctx context.Context, result *Result) {
		result.Received = volumeOf(request)
		reply, err = handler(ctx, request)
		if result.Reply, result.Err = reply, err; err == nil {
			result.Sent = volumeOf(reply)
		}
	})
	return reply, err
}

// Stream is a grpc.StreamServerInterceptor. It charges the opening of a stream. If a limit is
// [PerMessage], it also charges the messages received.
func (s *Server) Stream(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ctx := stream.Context()
	a, err := s.admit(ctx, info.FullMethod, nil, false)
	if err != nil {
		return err
	}
	if a.grants != nil {
		defer a.grants.End(ctx)
	}
	serve := func(stream grpc.ServerStream) error {
		if s.perMessage {
			stream = &limitedStream{ServerStream: stream, server: s, method: info.FullMethod}
		}
		return handler(service, stream)
	}
	if !s.settles {
		return serve(stream)
	}
	s.serveAndSettle(ctx, info.FullMethod, &a, func(ctx context.Context, result *Result) {
		settled := &settledStream{ServerStream: stream, ctx: ctx}
		defer func() { result.Sent, result.Received = settled.sent.total(), settled.received.total() }()
		err = serve(settled)
		result.Err = err
	})
	return err
}

// limitedStream charges each message that it receives.
type limitedStream struct {
	grpc.ServerStream
	server *Server
	method string
}

func (s *limitedStream) RecvMsg(message any) error {
	if err := s.ServerStream.RecvMsg(message); err != nil {
		return err
	}
	_, err := s.server.admit(s.Context(), s.method, message, true) // limits per message have no grants to end
	return err
}

// admitted has the charges of a call.
type admitted struct {
	grants    tiered.Grants // ended with the call
	limits    []*rateLimit  // the limits that apply to the call
	requests  []tiered.Request
	decisions []limit.Decision
}

// admit charges a call, or a message of a stream. If the charge is denied, it returns the status that
// the call ends with.
func (s *Server) admit(ctx context.Context, method string, message any, streamed bool) (a admitted, err error) {
	a.requests = make([]tiered.Request, 0, len(s.limits))
	for _, l := range s.limits {
		if streamed && !l.perMessage {
			continue
		}
		q, applies := l.Request(call{ctx, method, message})
		if !applies || streamed && q.Rule.Limit().IsConcurrent() {
			continue // RuleFor may choose a concurrency limit: the stream holds its units, its messages take none
		}
		a.limits, a.requests = append(a.limits, l), append(a.requests, q)
	}
	if len(a.requests) == 0 {
		return a, nil
	}
	a.decisions = make([]limit.Decision, len(a.requests))
	deciding := ctx
	if s.settles && !streamed {
		deciding = admission.Lasting(ctx)
	}
	a.grants, err = admission.Decide(deciding, s.limiter, a.requests, a.decisions)
	if err != nil {
		return admitted{}, s.onError(ctx, method, err)
	}
	if !a.decisions[0].Allowed { // then no other is
		return admitted{}, deniedStatus(a.requests, a.decisions)
	}
	return a, nil
}
