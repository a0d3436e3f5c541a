package grpclimit

import (
	"context"

	"google.golang.org/grpc"

	"github.com/tierlimit/tierlimit/internal/admission"
	"github.com/tierlimit/tierlimit/internal/option"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// Server holds calls to limits. Its methods Unary and Stream are interceptors; use
// both, or calls of the other kind are not limited. It is immutable and safe for
// concurrent use.
type Server struct {
	limiter    *tiered.Limiter
	limits     []*rateLimit
	names      admission.Names // of their rules
	perMessage bool            // at least one limit is
	onError    func(context.Context, string, error) error
}

// NewServer returns interceptors that hold calls to limits: one [Limit] at least, all
// of rules of the limiter. Errors wrap [limit.ErrInvalidOption].
func NewServer(limiter *tiered.Limiter, options ...Option) (*Server, error) {
	if limiter == nil {
		return nil, option.Invalid("the limiter is nil")
	}
	s := &Server{limiter: limiter, onError: errorStatus}
	for _, option := range options {
		if err := option(s); err != nil {
			return nil, err
		}
	}
	if len(s.limits) == 0 {
		return nil, option.Invalid("a server without a Limit")
	}
	return s, nil
}

// Unary is a grpc.UnaryServerInterceptor. Units of a rule with a limit of [limit.Concurrent] are
// held until the handler returns; those of a stream, too.
func (s *Server) Unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	grants, err := s.admit(ctx, info.FullMethod, request, false)
	if err != nil {
		return nil, err
	}
	if grants != nil {
		defer grants.End(ctx)
	}
	return handler(ctx, request)
}

// Stream is a grpc.StreamServerInterceptor. It charges the opening of a stream, and
// the messages received where a limit is told so ([PerMessage]).
func (s *Server) Stream(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	grants, err := s.admit(stream.Context(), info.FullMethod, nil, false)
	if err != nil {
		return err
	}
	if grants != nil {
		defer grants.End(stream.Context())
	}
	if s.perMessage {
		stream = &limitedStream{ServerStream: stream, server: s, method: info.FullMethod}
	}
	return handler(service, stream)
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
	_, err := s.server.admit(s.Context(), s.method, message, true) // no limit per message is to be ended
	return err
}

// admit charges a call, or a message of a stream, and returns the status that it is
// denied with, or the grants to end when it is over.
func (s *Server) admit(ctx context.Context, method string, message any, streamed bool) (tiered.Grants, error) {
	requests := make([]tiered.Request, 0, len(s.limits))
	for _, l := range s.limits {
		if streamed && !l.perMessage {
			continue
		}
		if q, applies := l.Request(call{ctx, method, message}); applies {
			requests = append(requests, q)
		}
	}
	if len(requests) == 0 {
		return nil, nil
	}
	decisions := make([]limit.Decision, len(requests))
	grants, err := admission.Decide(ctx, s.limiter, requests, decisions)
	if err != nil {
		return nil, s.onError(ctx, method, err)
	}
	if admission.Denied(decisions) {
		return nil, deniedStatus(requests, decisions)
	}
	return grants, nil
}
