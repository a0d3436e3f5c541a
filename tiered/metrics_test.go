package tiered

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

func TestErrorsAreCountedByReason(t *testing.T) {
	for err, want := range map[error]string{
		limit.ErrInvalidKey:       "invalid",
		limit.ErrInvalidCost:      "invalid",
		limit.ErrCostExceedsLimit: "invalid",
		limit.ErrInvalidRule:      "invalid",
		context.Canceled:          "cancelled",
		context.DeadlineExceeded:  "cancelled",
		limit.ErrClosed:           "closed",
		limit.ErrNotRedis:         "other",
	} {
		if got := reasonOf(fmt.Errorf("rule r: %w", err)).String(); got != want {
			t.Errorf("%v counts as %s, want %s", err, got, want)
		}
	}
}

// However often it is probed in vain, an outage counts once.
func TestAnOutageIsCountedOnce(t *testing.T) {
	server := redistest.Start(t)
	l := newLimiterOn(t, server.Client(t), redistest.Prefix())
	server.Kill()
	l.shard.Breaker.ForceOpen(errors.New("killed"))
	for inVain := errors.New("still gone"); ; time.Sleep(10 * time.Millisecond) {
		if err := l.shard.Breaker.Probe(func() error { return inVain }); err == inVain {
			break
		}
	}
	if opened := testutil.ToFloat64(l.metrics.opened); opened != 1 {
		t.Errorf("opened %v times, want 1", opened)
	}
}

// What the documents, the dashboard and the alert rules name is exported, label by
// label, and what is exported is described: a metric renamed in one place only breaks
// here and not in front of an operator.
func TestDocumentedMetricsAreExported(t *testing.T) {
	exported := exportedMetrics(t)
	const operating = "../docs/operating.md"
	files, err := filepath.Glob("../docs/monitoring/*.[jy]*") // .json, .yaml
	if err != nil || len(files) < 3 {
		t.Fatalf("found %v, %v", files, err)
	}
	name := regexp.MustCompile(`\btierlimit_[a-z_]+(?:\{([^}]*)\})?`)
	matcher := regexp.MustCompile(`(\w+)(=~|!~|!=|=)\\?["']([^"'\\]*)`)
	for _, file := range append(files, operating, "../README.md") {
		for _, found := range name.FindAllStringSubmatch(read(t, file), -1) {
			metric, _, _ := strings.Cut(found[0], "{")
			if metric == "tierlimit_" { // as in "tierlimit_*"
				continue
			}
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				metric = strings.TrimSuffix(metric, suffix)
			}
			labels, ok := exported[metric]
			if !ok {
				t.Errorf("%s names %s, which is not exported", file, metric)
			}
			for _, m := range matcher.FindAllStringSubmatch(found[1], -1) {
				label, values := m[1], m[3]
				if label == "rule" || label == "le" || label == "job" || label == "instance" {
					continue // of the user's or of Prometheus's choosing
				}
				for value := range strings.SplitSeq(values, "|") {
					if !labels[label+"="+value] {
						t.Errorf("%s: %s never has %s=%q", file, metric, label, value)
					}
				}
			}
		}
	}
	text := read(t, operating)
	for metric := range exported {
		if !strings.Contains(text, "`"+metric) {
			t.Errorf("%s does not describe %s", operating, metric)
		}
	}
}

// exportedMetrics is the names of all metrics, each with its pairs label=value.
func exportedMetrics(t *testing.T) map[string]map[string]bool {
	t.Helper()
	registry := prometheus.NewRegistry()
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix(), Metrics(registry))
	newRule(t, l, "r", limit.PerHour(10), Use(limit.GCRA()), Shadow(1))
	newRule(t, l, "dry", limit.PerHour(10), DryRun())
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	exported := make(map[string]map[string]bool)
	for _, family := range families {
		pairs := make(map[string]bool)
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				pairs[label.GetName()+"="+label.GetValue()] = true
			}
		}
		exported[family.GetName()] = pairs
	}
	return exported
}

func read(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
