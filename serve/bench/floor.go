package main

import (
	"context"
	"net"
	"os"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"

	"github.com/tierlimit/tierlimit/serve/internal/transport"
)

// floor is a service that decides nothing. It shows the cost of gRPC alone, with this service's options.
type floor struct {
	ratelimitv3.UnimplementedRateLimitServiceServer
}

func (floor) ShouldRateLimit(context.Context, *ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
	return &ratelimitv3.RateLimitResponse{OverallCode: ratelimitv3.RateLimitResponse_OK}, nil
}

func serveFloor() error {
	listener, err := net.Listen("tcp", os.Getenv("BENCH_FLOOR"))
	if err != nil {
		return err
	}
	server := grpc.NewServer(transport.Options(24*time.Hour, time.Hour)...)
	ratelimitv3.RegisterRateLimitServiceServer(server, floor{})
	return server.Serve(transport.Listener{Listener: listener})
}
