package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/tierlimit/tierlimit/embedded"
	"github.com/tierlimit/tierlimit/serve/internal/config"
	"github.com/tierlimit/tierlimit/serve/internal/service"
	"github.com/tierlimit/tierlimit/serve/internal/stats"
	"github.com/tierlimit/tierlimit/tiered"
)

// Check reads the configuration files of a directory as a service with these environment variables would, and writes
// the limits that they define. It uses the variables MERGE_DOMAIN_CONFIG and RUNTIME_IGNOREDOTFILES only. If
// overlayFile is not empty, Check merges that overlay. The error lists the mistakes, with file, line and column.
func Check(dir, overlayFile string, environ []string, w io.Writer) error {
	e := newEnvironment(environ)
	merge, ignoreDotFiles := e.truth("MERGE_DOMAIN_CONFIG", false), e.truth("RUNTIME_IGNOREDOTFILES", false)
	if err := errors.Join(e.errs...); err != nil {
		return err
	}
	files, err := readDir(dir, ignoreDotFiles)
	if err != nil {
		return err
	}
	var overlay *config.Overlay
	if overlayFile != "" {
		if overlay, _, err = readOverlay(overlayFile); err != nil {
			return err
		}
	}
	c, err := config.Load(context.Background(), files, merge, overlay)
	if err != nil {
		return err
	}
	if err := checkRules(c); err != nil {
		return err
	}
	for _, warning := range c.Warnings {
		fmt.Fprintln(w, "warning:", warning)
	}
	return c.Dump(w)
}

// checkRules makes the rules of all limits. That finds mistakes that no limit shows by itself, such as more units
// than its algorithm can hold.
func checkRules(c *config.Config) error {
	limiter, err := embedded.Open(tiered.Logger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	defer limiter.Close()
	return service.New(service.Limiters{All: limiter}, &stats.Set{}, service.Options{}).Load(c)
}

// Try sends a request to the service at an address, and writes the answer. The argument what is a domain and entries,
// "domain=d,key=value,key=value", with further descriptors after a semicolon.
func Try(ctx context.Context, address, what string, hits uint32, w io.Writer) error {
	request, err := parseTry(what)
	if err != nil {
		return err
	}
	request.HitsAddend = hits
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	response, err := ratelimitv3.NewRateLimitServiceClient(connection).ShouldRateLimit(ctx, request)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(w, protojson.MarshalOptions{Multiline: true, EmitUnpopulated: false}.Format(response))
	return err
}

var errTry = errors.New("must be like domain=mongo_cps,database=users, with further descriptors after a semicolon: domain=d,a=1;b=2")

func parseTry(what string) (*ratelimitv3.RateLimitRequest, error) {
	request := &ratelimitv3.RateLimitRequest{}
	for i, part := range strings.Split(what, ";") {
		d := &commonv3.RateLimitDescriptor{}
		for j, entry := range strings.Split(part, ",") {
			key, value, _ := strings.Cut(entry, "=")
			switch {
			case key == "":
				return nil, fmt.Errorf("%q: %w", what, errTry)
			case i == 0 && j == 0:
				if key != "domain" || value == "" {
					return nil, fmt.Errorf("%q: %w", what, errTry)
				}
				request.Domain = value
				continue
			}
			d.Entries = append(d.Entries, &commonv3.RateLimitDescriptor_Entry{Key: key, Value: value})
		}
		request.Descriptors = append(request.Descriptors, d)
	}
	return request, nil
}
