// Package service decides requests of Envoy's rate limit protocol.
package service

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tierlimit/tierlimit/serve/internal/config"
	"github.com/tierlimit/tierlimit/serve/internal/stats"
)

// Service is a RateLimitService. It is safe for concurrent use.
type Service struct {
	ratelimitv3.UnimplementedRateLimitServiceServer

	limiters Limiters
	options  Options
	stats    *stats.Set
	loaded   atomic.Pointer[loaded]
}

// New returns a service without a configuration: it has an error for all requests until there
// is one.
func New(limiters Limiters, s *stats.Set, options Options) *Service {
	if options.Now == nil {
		options.Now = time.Now
	}
	return &Service{limiters: limiters, options: options, stats: s}
}

// Load puts a configuration in force, whole or not at all. What was counted goes on to count.
func (s *Service) Load(c *config.Config) error {
	l, err := s.load(c)
	if err != nil {
		return err
	}
	s.loaded.Store(l)
	s.stats.InForce(slices.Collect(maps.Values(l.counts)))
	return nil
}

// Config is the configuration in force, nil if there is none.
func (s *Service) Config() *config.Config {
	if l := s.loaded.Load(); l != nil {
		return l.config
	}
	return nil
}

// ShouldRateLimit decides a request. Errors are the caller's mistakes, and that there is no
// configuration; that Redis is lost is none.
func (s *Service) ShouldRateLimit(_ context.Context, request *ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
	began := time.Now()
	response, err := s.decideAndCount(request, began)
	s.stats.TotalRequests.Add(1)
	s.stats.ResponseTime.Observe(time.Since(began))
	return response, err
}

// Decide is ShouldRateLimit for requests over HTTP, which the statistics of calls leave out, as in
// envoyproxy/ratelimit.
func (s *Service) Decide(request *ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
	return s.decideAndCount(request, time.Now())
}

func (s *Service) decideAndCount(request *ratelimitv3.RateLimitRequest, began time.Time) (*ratelimitv3.RateLimitResponse, error) {
	response, err := s.decide(request, began)
	if err != nil {
		s.stats.ServiceError.Add(1)
		return nil, err
	}
	return response, nil
}

func (s *Service) decide(request *ratelimitv3.RateLimitRequest, began time.Time) (*ratelimitv3.RateLimitResponse, error) {
	l := s.loaded.Load()
	switch {
	case request.GetDomain() == "":
		return nil, mistake("the request has no domain")
	case len(request.GetDescriptors()) == 0:
		return nil, mistake("the request has no descriptors")
	case l == nil:
		return nil, mistake("there is no configuration yet")
	}
	asked, err := s.match(l, request)
	if err != nil {
		return nil, err
	}
	// The caller's context is not used: whatever happens, there is a decision in time.
	if err := s.ask(context.Background(), asked, began.Add(s.options.Within)); err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return s.answer(request, asked), nil
}

// mistake is an error of whoever asked. The original's errors have no code of their own, which
// gRPC makes Unknown.
func mistake(format string, args ...any) error {
	return status.Error(codes.Unknown, fmt.Sprintf(format, args...))
}
