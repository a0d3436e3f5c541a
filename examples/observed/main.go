// Command observed limits a handler and shows how to observe the limiter: Prometheus metrics at
// /metrics, changes of state in the log, and, with -trace, every command sent to Redis as a span of
// OpenTelemetry.
package main

import (
	"flag"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/extra/redisotel/v9"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/tierlimit/tierlimit/examples/internal/connect"
	"github.com/tierlimit/tierlimit/httplimit"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/promlimit"
	"github.com/tierlimit/tierlimit/tiered"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "where to listen")
	redisURL := flag.String("redis", "", "URL of a Redis; without it, a stand-in inside the process")
	traced := flag.Bool("trace", false, "print the spans of commands to Redis")
	flag.Parse()
	logger := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	tiered.LogOfRedis(logger) // as tiered.Open would do, before the client is made

	options, stop, err := connect.Options(*redisURL)
	if err != nil {
		log.Fatal(err)
	}
	defer stop()
	// tiered.Open would make these settings. Here the client is the program's own, so that it can be
	// traced.
	options.ContextTimeoutEnabled = true
	options.MaxRetries = -1
	options.DialTimeout, options.DialerRetries = time.Second, 1
	client := redis.NewUniversalClient(options)
	defer client.Close()
	if *traced {
		if err := trace(client); err != nil { // before the limiter uses the client
			log.Fatal(err)
		}
	}

	limiter, err := tiered.New(client, tiered.Logger(logger))
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	registry := prometheus.NewRegistry()
	registry.MustRegister(promlimit.NewCollector(limiter))
	// A tenth of the clients is also counted exactly, which shows how far off the counter is.
	search, err := limiter.Rule("search", limit.PerMinute(60), tiered.Use(limit.SlidingCounter(16, limit.Strict)), tiered.Shadow(0.1))
	if err != nil {
		log.Fatal(err)
	}
	limits, err := httplimit.New(limiter, httplimit.Limit(search, httplimit.Header("X-Client")))
	if err != nil {
		log.Fatal(err)
	}

	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.Handle("GET /search", limits(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "found nothing")
	})))
	server := &http.Server{Addr: *addr, Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	log.Fatal(server.ListenAndServe())
}

// trace makes the client trace every command that it sends. Arguments are left out, because they
// contain the keys, which may be names of users.
func trace(client redis.UniversalClient) error {
	exporter, err := stdouttrace.New()
	if err != nil {
		return err
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter))
	return redisotel.InstrumentTracing(client,
		redisotel.WithTracerProvider(provider),
		redisotel.WithDBStatement(false))
}
