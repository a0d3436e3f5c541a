// Package snippet declares the variables that fragments of Go in the documentation may use without
// declaring them. ../snippets_test.go compiles each fragment together with this file.
package snippet

import (
	"context"
	"net/http"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/tiered"
)

var (
	ctx      context.Context
	limiter  *tiered.Limiter
	search   *tiered.Rule
	userID   string
	rdb      redis.UniversalClient
	options  *redis.UniversalOptions
	registry *prometheus.Registry

	mux     *http.ServeMux
	handler http.Handler
	server  *http.Server
	w       http.ResponseWriter
	r       *http.Request

	t *testing.T
)
