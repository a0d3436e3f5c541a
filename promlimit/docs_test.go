package promlimit_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// Every metric and label that the documents, the dashboard and the alert rules name is exported, and
// every exported metric is described. A metric that is renamed in one place only fails this test
// instead of surprising an operator.
func TestDocumentedMetricsAreExported(t *testing.T) {
	exported := exportedMetrics(t)
	described := []string{"../docs/operating.md", "../docs/rules.md"}
	files, err := filepath.Glob("../docs/monitoring/*.[jy]*") // .json, .yaml
	if err != nil || len(files) < 3 {
		t.Fatalf("found %v, %v", files, err)
	}
	name := regexp.MustCompile(`\btierlimit_[a-z_]+(?:\{([^}]*)\})?`)
	matcher := regexp.MustCompile(`(\w+)(=~|!~|!=|=)\\?["']([^"'\\]*)`)
	for _, file := range append(files, append(described, "../README.md")...) {
		for _, found := range name.FindAllStringSubmatch(read(t, file), -1) {
			metric, _, _ := strings.Cut(found[0], "{")
			if metric == "tierlimit_" { // from "tierlimit_*"
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
					continue // chosen by the user or by Prometheus
				}
				for value := range strings.SplitSeq(values, "|") {
					if !labels[label+"="+value] {
						t.Errorf("%s: %s never has %s=%q", file, metric, label, value)
					}
				}
			}
		}
	}
	text := read(t, described[0]) + read(t, described[1])
	for metric := range exported {
		if !strings.Contains(text, "`"+metric) {
			t.Errorf("neither of %q describes %s", described, metric)
		}
	}
}

// Every exported metric is on the dashboard, because an operator on call does not know the metrics'
// names.
func TestDashboardShowsEveryMetric(t *testing.T) {
	dashboard := read(t, "../docs/monitoring/dashboard.json")
	for metric := range exportedMetrics(t) {
		if !regexp.MustCompile(`"expr": ".*\b` + metric + `(_bucket|_sum|_count)?\b`).MatchString(dashboard) {
			t.Errorf("no panel shows %s", metric)
		}
	}
}

// exportedMetrics returns the names of all metrics, each with its pairs label=value.
func exportedMetrics(t *testing.T) map[string]map[string]bool {
	t.Helper()
	l, registry := newLimiter(t)
	newRule(t, l, "r", limit.PerHour(10), tiered.Use(limit.GCRA()), tiered.Shadow(1))
	newRule(t, l, "dry", limit.PerHour(10), tiered.DryRun())
	l.SourceLoaded("rules.yaml", nil)
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
