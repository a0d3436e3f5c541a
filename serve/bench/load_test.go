package main

import (
	"net"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
)

// Errors are quick, and are no decisions.
func TestErrorsAreNoDecisions(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	defer server.Stop()
	ratelimitv3.RegisterRateLimitServiceServer(server, ratelimitv3.UnimplementedRateLimitServiceServer{})
	go func() { _ = server.Serve(listener) }() // ends with Stop
	s := &side{address: listener.Addr().String(), connections: 1}
	if r, err := s.measure(1, 1, 50*time.Millisecond); err == nil {
		t.Errorf("%+v", r)
	}
}
