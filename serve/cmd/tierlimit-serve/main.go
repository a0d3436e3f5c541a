// Command tierlimit-serve is a rate limit service for Envoy, and a drop-in replacement for envoyproxy/ratelimit. It
// is configured by the same environment variables, see docs/serve.md.
//
//	tierlimit-serve                                 serve
//	tierlimit-serve -try 'domain=d,key=value'       ask a service that runs
//	tierlimit-serve -check DIR                      check configuration files
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"os/signal"
	"path"
	"strings"
	"syscall"

	"github.com/tierlimit/tierlimit/serve"
	"github.com/tierlimit/tierlimit/tiered"
)

const usage = `tierlimit-serve is a rate limit service for Envoy, configured by environment variables.

	tierlimit-serve                             serve until SIGTERM or Ctrl-C
	tierlimit-serve -try 'domain=d,key=value'   ask a running service, and show its answer
	tierlimit-serve -check DIR                  check the configuration files of a directory

Flags:
`

func main() {
	tiered.LogOfRedis(nil) // the limiter logs errors of Redis itself
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr)
	stop()
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	default:
		fmt.Fprintln(os.Stderr, "tierlimit-serve:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args, environ []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("tierlimit-serve", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprint(stderr, usage)
		flags.PrintDefaults()
	}
	try := flags.String("try", "", "request a decision on `domain=DOMAIN,KEY=VALUE,...`; more descriptors may follow, each after a ;")
	hits := flags.Uint("hits", 0, "how many `hits` to request with -try (0 means 1)")
	to := flags.String("to", "127.0.0.1:8081", "`address` of the service that -try asks")
	check := flags.String("check", "", "check the configuration files of a `directory`")
	overlay := flags.String("overlay", "", "overlay `file` to merge with -check, as TIERLIMIT_OVERLAY is for a service")
	// envoyproxy/ratelimit ignores its arguments, and some published manifests give it a -config.
	ignored := flags.String("config", "", "has no effect, as in envoyproxy/ratelimit: RUNTIME_ROOT says where the configuration `file` is")
	// envoyproxy/ratelimit's docker-compose files say "command: /bin/ratelimit", which arrives as an argument after
	// the image's entry point.
	if len(args) > 0 && path.Base(args[0]) == "ratelimit" {
		args = args[1:]
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unknown argument %q", flags.Arg(0))
	}
	switch {
	case *check != "" && *try != "":
		return errors.New("-check and -try are both set: choose one of them")
	case *check != "":
		return serve.Check(*check, *overlay, environ, stdout)
	case *try != "" && *hits > math.MaxUint32:
		return fmt.Errorf("-hits is %d, must be at most %d", *hits, uint32(math.MaxUint32))
	case *try != "":
		return serve.Try(ctx, *to, *try, uint32(*hits), stdout)
	case flags.NFlag() == 1 && *ignored != "":
		return serveUntil(ctx, environ, stderr, "the flag -config has no effect: RUNTIME_ROOT, RUNTIME_SUBDIRECTORY and RUNTIME_APPDIRECTORY say where the configuration is")
	case flags.NFlag() > 0: // such as -check "$DIR" without a DIR
		return errors.New("flags are set, but neither -check nor -try says what to do; a service takes its settings from environment variables")
	}
	return serveUntil(ctx, environ, stderr)
}

// serveUntil runs a service until ctx ends. The given warnings are logged at its start.
func serveUntil(ctx context.Context, environ []string, stderr io.Writer, more ...string) error {
	settings, warnings, err := serve.FromEnvironment(environ)
	if err != nil {
		return err
	}
	log := newLog(&settings, stderr)
	for _, warning := range append(more, warnings...) {
		log.Warn(warning)
	}
	if os.Getenv("GOGC") == "" {
		go boundGarbage(ctx)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		if most := boundMemory(); most > 0 {
			log.Info("Go's memory limit is set to fit the container's", "bytes", most)
		}
	}
	server, err := serve.Start(ctx, settings, log)
	switch {
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return nil
	case err != nil:
		return err
	}
	defer server.Close()
	select {
	case <-ctx.Done():
		return nil
	case err := <-server.Failed():
		return err
	}
}

// newLog returns the log. Its levels, and the fields of JSON, have the names that envoyproxy/ratelimit gives them, because
// whoever collects and filters its logs has set up these names.
func newLog(settings *serve.Settings, w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: settings.LogLevel}
	options.ReplaceAttr = func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) > 0 {
			return a
		}
		switch a.Key {
		case slog.LevelKey:
			if level, ok := a.Value.Any().(slog.Level); ok {
				return slog.String(slog.LevelKey, levelName(level))
			}
		case slog.TimeKey:
			if settings.LogJSON && a.Value.Kind() == slog.KindTime {
				a.Key = "@timestamp"
			}
		case slog.MessageKey:
			if settings.LogJSON {
				a.Key = "@message"
			}
		}
		return a
	}
	if settings.LogJSON {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

func levelName(level slog.Level) string {
	if level == slog.LevelWarn {
		return "warning"
	}
	return strings.ToLower(level.String())
}
