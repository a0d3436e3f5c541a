// Command llm is a proxy in front of a language model that streams its answers. Four limits are taken
// in one call, all or none. Three are per tenant: requests per minute, tokens per minute, and streams
// at a time. The fourth is tokens per calendar month, per organization. The model is a stand-in inside
// the program.
//
// Start the program in several terminals with the same -redis, and kill one process (kill -9) while it
// streams: its streams are free for the others after -slot-ttl.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/tierlimit/tierlimit/examples/internal/connect"
	"github.com/tierlimit/tierlimit/tiered"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "where to listen")
	redis := flag.String("redis", "", "URL of a Redis; without it, a stand-in inside the process")
	pause := flag.Duration("pause", 50*time.Millisecond, "how long the model takes for a token")
	l := defaults
	flag.Int64Var(&l.requests, "requests", l.requests, "requests per minute, of each tenant")
	flag.Int64Var(&l.tokens, "tokens", l.tokens, "tokens per minute, of each tenant")
	flag.Int64Var(&l.budget, "budget", l.budget, "tokens per month, of each organisation")
	flag.Int64Var(&l.streams, "streams", l.streams, "streams at a time, of each tenant")
	flag.Int64Var(&l.expected, "expected", l.expected, "tokens that an answer is expected to have")
	flag.DurationVar(&l.life, "life", l.life, "how long an estimate outlives this process")
	flag.DurationVar(&l.slotTTL, "slot-ttl", l.slotTTL, "how long a stream outlives this process")
	flag.Parse()
	if err := run(*addr, *redis, *pause, l); err != nil {
		log.Fatal(err)
	}
}

func run(addr, redis string, pause time.Duration, l limits) error {
	// A client that waits seconds for an answer can also wait for Redis. That is better than a decision
	// without Redis.
	limiter, stop, err := connect.Limiter(redis, tiered.Deadline(time.Second))
	if err != nil {
		return err
	}
	defer stop() // sends the settlements that are still waiting
	model, stopModel, err := startModel(pause)
	if err != nil {
		return err
	}
	defer stopModel()
	proxy, err := newProxy(limiter, l, model)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	fmt.Println("listening on", listener.Addr())

	server := &http.Server{Handler: proxy.routes(), ReadHeaderTimeout: 5 * time.Second}
	interrupted, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return err
	case <-interrupted.Done():
	}
	// Streams may come to their end. Those that do not end in time are cut off, and settled with what
	// they used.
	patience, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := server.Shutdown(patience); errors.Is(err, context.DeadlineExceeded) {
		_ = server.Close()
		proxy.underWay.Wait()
	}
	return nil
}
