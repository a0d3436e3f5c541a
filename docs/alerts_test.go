package docs_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// runbooks is the address of the instructions for each alert. It is on the default branch, since an alert does not
// know the address of the documentation for the version in use.
const runbooks = "https://github.com/tierlimit/tierlimit/blob/main/docs/operating.md"

// Every alert links to a section of instructions, every section belongs to an alert, and a case for promtool makes
// each alert fire.
func TestAlertsLeadToRunbooks(t *testing.T) {
	alerts := alertRules(t)
	page := pages(t)["operating.md"]
	sections := headings(page)
	for name, annotations := range alerts {
		address, anchor, _ := strings.Cut(annotations["runbook_url"], "#")
		switch {
		case address != runbooks:
			t.Errorf("%s: runbook_url is %q, want one of %s", name, annotations["runbook_url"], runbooks)
		case anchor != strings.ToLower(name) || !slices.Contains(sections, "#"+anchor):
			t.Errorf("%s: runbook_url leads to #%s, which operating.md must have as a heading %s", name, anchor, name)
		}
		if annotations["summary"] == "" {
			t.Errorf("%s has no summary", name)
		}
	}
	for _, section := range heading.FindAllStringSubmatch(page, -1) {
		if strings.HasPrefix(section[1], "Tierlimit") && alerts[section[1]] == nil {
			t.Errorf("operating.md describes %s, which alerts.yaml does not have", section[1])
		}
	}
	fired := firedInTests(t)
	for name := range alerts {
		if !fired[name] {
			t.Errorf("no case of alerts_test.yaml has %s fire", name)
		}
	}
}

// alertRules returns the annotations of each alert.
func alertRules(t *testing.T) map[string]map[string]string {
	t.Helper()
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert       string
				Annotations map[string]string
			}
		}
	}
	readYAML(t, "monitoring/alerts.yaml", &file)
	alerts := make(map[string]map[string]string)
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			alerts[rule.Alert] = rule.Annotations
		}
	}
	if len(alerts) < 10 {
		t.Fatalf("%d alerts", len(alerts))
	}
	return alerts
}

// firedInTests returns the alerts that some case for promtool expects to fire.
func firedInTests(t *testing.T) map[string]bool {
	t.Helper()
	var file struct {
		Tests []struct {
			Cases []struct {
				Name     string `yaml:"alertname"`
				Expected []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	readYAML(t, "monitoring/alerts_test.yaml", &file)
	fired := make(map[string]bool)
	for _, test := range file.Tests {
		for _, c := range test.Cases {
			if len(c.Expected) > 0 {
				fired[c.Name] = true
			}
		}
	}
	return fired
}

func readYAML(t *testing.T, file string, to any) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(content, to); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}
