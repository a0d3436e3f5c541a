// Package service answers requests of Envoy's rate limit protocol.
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

// Service implements RateLimitService. It is safe for concurrent use.
type Service struct {
	ratelimitv3.UnimplementedRateLimitServiceServer

	limiters Limiters
	options  Options
	stats    *stats.Set
	loaded   atomic.Pointer[loaded]
	ahead    [2]atomic.Int64 // microseconds by which the clocks of the Redis of All and PerSecond are ahead of this one's
}

// New returns a service without a configuration. It answers all requests with an error until it has one.
func New(limiters Limiters, s *stats.Set, options Options) *Service {
	if options.Now == nil {
		options.Now = time.Now
	}
	return &Service{limiters: limiters, options: options, stats: s}
}

// Load puts a configuration in force, either whole or not at all. Counts continue.
func (s *Service) Load(c *config.Config) error {
	l, err := s.load(c)
	if err != nil {
		return err
	}
	s.loaded.Store(l)
	s.stats.InForce(slices.Collect(maps.Values(l.counts)))
	return nil
}

// Config returns the configuration in force, or nil if there is none.
func (s *Service) Config() *config.Config {
	if l := s.loaded.Load(); l != nil {
		return l.config
	}
	return nil
}

// ShouldRateLimit decides a request. It returns errors for the caller's mistakes and while there is no configuration.
// The loss of Redis is not an error.
func (s *Service) ShouldRateLimit(_ context.Context, request *ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
	began := time.Now()
	response, err := s.decideAndCount(request, began)
	s.stats.TotalRequests.Add(1)
	s.stats.ResponseTime.Observe(time.Since(began))
	return response, err
}

// Decide is ShouldRateLimit for requests over HTTP. As in envoyproxy/ratelimit, the statistics of calls do not
// include them.
func (s *Service) Decide(request *ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
	return s.decideAndCount(request, time.Now())
}

func (s *Service) decideAndCount(request *ratelimitv3.RateLimitRequest, began time.Time) (*ratelimitv3.RateLimitResponse, error) {
	response, err := s.decide(request, began)
	if err != nil {
		s.stats.ServiceError.Add(1)
		if s.logged() {
			s.options.Log.Debug("request", "asked", oneLine(request), "error", err)
		}
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
	// The caller's context is not used, because every request gets a decision in time.
	if err := s.ask(context.Background(), asked, began.Add(s.options.Within)); err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	s.compareClocks(asked)
	response := s.answer(request, asked)
	if s.logged() {
		s.options.Log.Debug("request", "asked", oneLine(request), "limits", paths(asked), "answer", oneLine(response))
	}
	return response, nil
}

// mistake returns an error for a caller's mistake. Errors of envoyproxy/ratelimit have no code of their own, so gRPC
// sends Unknown.
func mistake(format string, args ...any) error {
	return status.Error(codes.Unknown, fmt.Sprintf(format, args...))
}
