// Command grpc limits a gRPC service by the caller's address, and calls the service until the limit is
// used up.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	pb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/tierlimit/tierlimit/examples/internal/connect"
	"github.com/tierlimit/tierlimit/grpclimit"
	"github.com/tierlimit/tierlimit/limit"
)

func main() {
	redis := flag.String("redis", "", "URL of a Redis; without it, a stand-in inside the process")
	flag.Parse()

	limiter, stop, err := connect.Limiter(*redis)
	if err != nil {
		log.Fatal(err)
	}
	defer stop()
	calls, err := limiter.Rule("calls", limit.PerMinute(3))
	if err != nil {
		log.Fatal(err)
	}
	limits, err := grpclimit.NewServer(limiter,
		grpclimit.Limit(calls, grpclimit.Join(grpclimit.Peer, grpclimit.Method)))
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(limits.Unary),
		grpc.ChainStreamInterceptor(limits.Stream),
	)
	pb.RegisterHealthServer(server, health.NewServer()) // stands for your own service

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go func() { log.Fatal(server.Serve(listener)) }()

	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	for range 4 {
		_, err := pb.NewHealthClient(conn).Check(context.Background(), &pb.HealthCheckRequest{})
		fmt.Println(status.Code(err), status.Convert(err).Message())
		for _, detail := range status.Convert(err).Details() {
			fmt.Printf("  %T %v\n", detail, detail)
		}
	}
}
