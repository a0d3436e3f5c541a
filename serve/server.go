package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	_ "google.golang.org/grpc/encoding/gzip" // lets clients compress with gzip, which envoyproxy/ratelimit also accepts
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/tierlimit/tierlimit/livepage"
	"github.com/tierlimit/tierlimit/serve/internal/config"
	"github.com/tierlimit/tierlimit/serve/internal/service"
	"github.com/tierlimit/tierlimit/serve/internal/stats"
	"github.com/tierlimit/tierlimit/serve/internal/statsd"
	"github.com/tierlimit/tierlimit/serve/internal/transport"
	"github.com/tierlimit/tierlimit/tiered"
)

// Server is a running rate limit service. Close ends it.
type Server struct {
	settings Settings
	log      *slog.Logger

	limiters service.Limiters
	stats    *stats.Set
	service  *service.Service
	health   *healthState
	page     *livepage.Page
	statsd   *statsd.Sender // nil: none

	grpc      *grpc.Server
	greeting  *handshakes // of connections that are still in their gRPC handshake
	http      []*http.Server
	leaving   leaving                 // of the clients over HTTP
	listeners map[string]net.Listener // by name, see Addr

	loading sync.Mutex    // guards what follows
	files   []config.File // in force
	overlay *config.Overlay
	loaded  int           // how many configurations have been put in force
	tried   int           // how many configurations have been read, also those that were refused
	refused []config.File // the files of the last attempt to load, if they were refused,
	refusal error         // and why they were, with the overlay in force

	life       context.Context // ends when the service begins to end
	stop       context.CancelFunc
	following  sync.WaitGroup // goroutines that read configurations
	background sync.WaitGroup
	failed     chan error
	closing    sync.Once
}

// endWithin is how long requests in flight may take when the server ends, and greetWithin is how much of that time
// handshakes and watches of the health may take: clients are told to go elsewhere only after the handshakes are done.
// After everything else has ended, Close waits at most readWithin for a configuration that is being read.
const (
	endWithin   = 10 * time.Second
	greetWithin = time.Second
	readWithin  = time.Second
)

// Start starts a service, which is listening when Start returns. It also starts without Redis, which is an outage,
// and without a readable configuration, which it then waits for. Errors wrap [ErrInvalidSetting], come from
// listening, or are ctx's error if ctx ends before the service listens: reading hundreds of thousands of limits takes
// seconds. Once the service listens, ctx has no effect.
func Start(ctx context.Context, s Settings, log *slog.Logger) (*Server, error) {
	server := &Server{settings: s, log: log, stats: &stats.Set{}, listeners: make(map[string]net.Listener), failed: make(chan error, 8)}
	server.life, server.stop = context.WithCancel(context.Background())
	detach := context.AfterFunc(ctx, server.stop)
	err := server.start(server.life)
	if !detach() {
		err = ctx.Err()
	}
	if err != nil {
		server.Close()
		return nil, err
	}
	return server, nil
}

func (s *Server) start(ctx context.Context) error {
	registry := prometheus.NewRegistry()
	registry.MustRegister(s.stats, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	s.health = newHealth()
	if s.settings.HealthyWithConfig {
		s.health.set("config", false)
	}
	if !s.settings.HealthyAtOnce {
		s.health.waiting()
	}
	if err := s.openLimiters(registry); err != nil {
		return err
	}
	s.service = service.New(s.limiters, s.stats, service.Options{
		NearLimit:  s.settings.NearLimit,
		ShadowMode: s.settings.ShadowMode, QuotaMode: s.settings.QuotaMode,
		Headers: s.settings.Headers, LimitHeader: s.settings.LimitHeader,
		RemainingHeader: s.settings.RemainingHeader, ResetHeader: s.settings.ResetHeader,
		DynamicMetadata: s.settings.DynamicMetadata, RememberDenials: s.settings.RememberDenials,
		ChargeSeparately: s.settings.ChargeSeparately, Within: s.settings.within(), Log: s.log,
	})
	s.service.WarmUp()
	var err error
	if s.page, err = livepage.New(s.limiters.All); err != nil {
		return err
	}
	if err := s.followConfig(ctx); err != nil {
		return err
	}
	if err := s.serveGRPC(); err != nil {
		return err
	}
	api := http.NewServeMux()
	api.Handle("/healthcheck", s.health)
	api.HandleFunc("/json", jsonHandler(s.service.Decide, longestBody))
	if err := s.serveHTTP("http", s.settings.HTTP, api); err != nil {
		return err
	}
	if err := s.serveHTTP("debug", s.settings.Debug, s.debugHandler()); err != nil { // not needed to answer requests
		s.log.Error("the pages for operators are not served", "error", err)
	}
	s.sendStatistics(ctx)
	if s.settings.Metrics == "" {
		return nil
	}
	metrics := http.NewServeMux()
	metrics.Handle(s.settings.MetricsPath, promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	if err := s.serveHTTP("metrics", s.settings.Metrics, metrics); err != nil {
		if s.settings.metricsWanted {
			return err
		}
		s.log.Warn("Prometheus's metrics are not served (set USE_PROMETHEUS=false if nobody needs them)", "error", err)
	}
	return nil
}

// sendStatistics starts sending statistics to statsd at intervals, if statsd is set. No request waits for it.
func (s *Server) sendStatistics(ctx context.Context) {
	if s.settings.Statsd.Network == "" {
		return
	}
	s.statsd = statsd.New(s.settings.Statsd, s.stats)
	s.background.Go(func() {
		ticker := time.NewTicker(s.settings.StatsdEvery)
		defer ticker.Stop()
		failing := false
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			err := s.statsd.Flush(ctx)
			if err != nil && !failing && ctx.Err() == nil { // log only the first of several failures
				level := slog.LevelInfo
				if s.settings.statsdWanted {
					level = slog.LevelWarn
				}
				s.log.Log(ctx, level, "statistics cannot be sent to statsd, and are kept for later (set USE_STATSD=false if nobody needs them)", "error", err)
			}
			failing = err != nil
		}
	})
}

// followConfig reads the configuration for the first time, and again when it changes.
func (s *Server) followConfig(ctx context.Context) error {
	if s.settings.Overlay != "" {
		w := overlayWatch{server: s}
		if err := w.begin(); err != nil {
			return err
		}
		s.following.Go(func() { s.lookAgain(ctx, w.again) })
	}
	if !s.settings.UseXDS {
		w, begun := newWatch(s), make(chan struct{})
		s.following.Go(func() {
			w.begin()
			close(begun)
			s.lookAgain(ctx, w.again)
		})
		select {
		case <-begun:
		case <-ctx.Done():
		}
		return ctx.Err()
	}
	connection, err := s.settings.XDS.dial()
	if err != nil {
		return err
	}
	_ = connection.Close() // dial has checked the settings, which is all that is needed here
	s.following.Go(func() { (&subscription{server: s}).run(ctx) })
	return nil
}

func (s *Server) serveGRPC() error {
	options := transport.Options(s.settings.MaxConnectionAge, s.settings.MaxConnectionAgeGrace)
	if s.settings.UseTLS {
		config, err := serverTLS(s.settings.TLS, s.log)
		if err != nil {
			return err
		}
		options = append(options, grpc.Creds(credentials.NewTLS(config)))
	}
	s.grpc = grpc.NewServer(options...)
	ratelimitv3.RegisterRateLimitServiceServer(s.grpc, s.service)
	healthv1.RegisterHealthServer(s.grpc, watchedHealth{s.health.grpc, s.health})
	network, address := "tcp", s.settings.GRPC
	if s.settings.GRPCSocket != "" {
		network, address = "unix", s.settings.GRPCSocket
		removeStaleSocket(address)
	}
	listener, err := net.Listen(network, address)
	if err != nil {
		return fmt.Errorf("gRPC (GRPC_HOST, GRPC_PORT, GRPC_UDS): %w", err)
	}
	s.listeners["grpc"] = listener
	s.log.Warn("listening", "for", "gRPC", "at", listener.Addr().String())
	s.greeting = newHandshakes(listener, greetWithin)
	s.background.Go(func() {
		if err := s.grpc.Serve(s.greeting); err != nil {
			s.failed <- fmt.Errorf("gRPC: %w", err)
		}
	})
	return nil
}

// removeStaleSocket removes the socket of a process that has ended. It leaves a socket at which a process listens.
func removeStaleSocket(path string) {
	if info, err := os.Stat(path); err != nil || info.Mode()&os.ModeSocket == 0 {
		return
	}
	connection, err := net.Dial("unix", path)
	if err == nil {
		_ = connection.Close()
	}
	// Any other error may come from a process that listens: its queue may be full, or this user may not connect.
	if errors.Is(err, syscall.ECONNREFUSED) {
		_ = os.Remove(path)
	}
}

// addressVariables names the variables that set the address of each HTTP server.
var addressVariables = map[string]string{
	"http": "HOST, PORT", "debug": "DEBUG_HOST, DEBUG_PORT", "metrics": "PROMETHEUS_ADDR",
}

func (s *Server) serveHTTP(what, address string, handler http.Handler) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("%s (%s): %w", what, addressVariables[what], err)
	}
	listener = transport.Ending{Listener: listener} // ends connections of clients that no longer read
	s.listeners[what] = listener
	s.log.Warn("listening", "for", what, "at", listener.Addr().String())
	server := newHTTPServer(handler)
	s.leaving.of(server)
	if what == "debug" {
		server.RegisterOnShutdown(s.page.Close)
	}
	s.http = append(s.http, server)
	s.background.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			s.failed <- fmt.Errorf("%s: %w", what, err)
		}
	})
	return nil
}

// Addr returns the address at which "grpc", "http", "debug" or "metrics" is served, or nil if it is not served.
func (s *Server) Addr(what string) net.Addr {
	if l := s.listeners[what]; l != nil {
		return l.Addr()
	}
	return nil
}

// Failed returns a channel that receives an error when the server can no longer serve.
func (s *Server) Failed() <-chan error { return s.failed }

// Close ends the service. It reports the service as not healthy and lets calls in flight end, for 10 s at most. Then
// it charges Redis for what was granted without it, within 13 s of the beginning of Close, and leaves the fleet.
// Closing again does nothing.
func (s *Server) Close() {
	s.closing.Do(func() {
		began := time.Now()
		if s.health != nil {
			s.health.set("ending", false)
		}
		s.stop()
		left := make(chan struct{})
		go func() {
			defer close(left)
			s.leaving.end()
		}()
		var serving sync.WaitGroup
		ended := make(chan struct{})
		serving.Go(func() {
			defer close(ended)
			s.endGRPC()
		})
		select {
		case <-ended:
		case <-time.After(endWithin - time.Second):
		}
		<-left
		// Up to this point /healthcheck has answered that the service is not healthy. Requests over HTTP get the rest
		// of the time, which is about one second at least.
		for _, server := range s.http {
			serving.Go(func() { endHTTP(server, endWithin-time.Since(began)) })
		}
		serving.Wait()
		s.background.Wait()
		var ending sync.WaitGroup // all at the same time, as above
		if s.statsd != nil {
			ending.Go(func() { _ = s.statsd.Flush(context.Background()) }) // an error has been logged before
		}
		for _, limiter := range []*tiered.Limiter{s.limiters.All, s.limiters.PerSecond} {
			if limiter == nil {
				continue
			}
			ending.Go(func() {
				chargeRest(limiter, endWithin+lostWithin-time.Since(began))
				if err := limiter.Close(); err != nil {
					s.log.Warn("closing a limiter", "error", err)
				}
			})
		}
		ending.Wait()
		read := make(chan struct{})
		go func() {
			s.following.Wait()
			close(read)
		}()
		select {
		case <-read:
		case <-time.After(readWithin):
		}
	})
}

// endGRPC lets calls in flight end, for 10 s at most.
func (s *Server) endGRPC() {
	if s.grpc == nil {
		return
	}
	if s.greeting != nil {
		s.greeting.end()
	}
	told := time.AfterFunc(greetWithin, s.health.endWatches) // by then clients know that the service is not healthy
	defer told.Stop()
	late := time.AfterFunc(endWithin, s.grpc.Stop)
	defer late.Stop()
	s.grpc.GracefulStop()
}
