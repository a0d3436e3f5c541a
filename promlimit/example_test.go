package promlimit_test

import (
	"log"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tierlimit/tierlimit/promlimit"
	"github.com/tierlimit/tierlimit/tiered"
)

// This exports the limiter's metrics together with the program's own, at /metrics.
func ExampleNewCollector() {
	limiter, err := tiered.OpenURL("redis://localhost:6379")
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()

	prometheus.MustRegister(promlimit.NewCollector(limiter))
	http.Handle("/metrics", promhttp.Handler())
}

// This registers two limiters with one registry.
func ExampleNewCollector_several() {
	var accounts, searches *tiered.Limiter // each on a Redis of its own

	for name, limiter := range map[string]*tiered.Limiter{"accounts": accounts, "searches": searches} {
		labelled := prometheus.WrapRegistererWith(prometheus.Labels{"redis": name}, prometheus.DefaultRegisterer)
		labelled.MustRegister(promlimit.NewCollector(limiter))
	}
}
