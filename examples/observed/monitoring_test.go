//go:build monitoring

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// Four instances of this program run under load, with a real Prometheus and the alert rules of
// docs/monitoring. Redis is stopped and continued. Every query of the dashboard gets data, the outage
// raises its alert, and there is no alert before it.
func TestMonitoringOfAFleet(t *testing.T) {
	server := redistest.Start(t)
	program := filepath.Join(t.TempDir(), "observed")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	fleet := make([]string, 4)
	for i := range fleet {
		fleet[i] = freeAddress(t)
		start(t, program, "-addr", fleet[i], "-redis", server.URL())
	}
	p := startPrometheus(t, fleet)
	load(t, fleet)

	t.Log("healthy")
	waitFor(t, "a fleet of 4, scraped", func() error { return p.has(`tierlimit_fleet_size == 4`, 4) })
	waitFor(t, "rates of 15 s", func() error { return p.has(`count_over_time(tierlimit_fleet_size[15s]) >= 10`, 4) })
	checkDashboard(t, p)
	for name, state := range p.alerts(t) {
		if state == "firing" {
			t.Errorf("alert %s while all is well", name)
		}
	}

	t.Log("Redis stands still")
	server.Pause()
	waitFor(t, "a pending alert", func() error { return p.alerted(t, "TierlimitRedisLost", "pending") })
	waitFor(t, "decisions without Redis", func() error {
		return p.has(`sum(rate(tierlimit_decisions_total{tier="fallback"}[5s])) > 0`, 1)
	})
	checkDashboard(t, p)
	waitFor(t, "a firing alert", func() error { return p.alerted(t, "TierlimitRedisLost", "firing") })
	t.Logf("alerts: %v", p.alerts(t))

	t.Log("Redis goes on")
	server.Resume()
	waitFor(t, "the end of the alert", func() error { return p.alerted(t, "TierlimitRedisLost", "") })
	waitFor(t, "decisions by Redis alone", func() error {
		return p.has(`sum(rate(tierlimit_decisions_total{tier="fallback"}[5s])) == 0`, 1)
	})
}

// checkDashboard sends every query of the dashboard to Prometheus, as Grafana would with all jobs and
// rules selected.
func checkDashboard(t *testing.T, p *scraper) {
	t.Helper()
	content, err := os.ReadFile("../../docs/monitoring/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Type    string
			Targets []struct{ Expr string }
		}
		Annotations struct {
			List []struct{ Name, Expr string }
		}
	}
	if err := json.Unmarshal(content, &dashboard); err != nil {
		t.Fatal(err)
	}
	variables := strings.NewReplacer("$__rate_interval", "15s", "$__interval", "15s", "$job", ".+", "$rule", ".+")
	asked := 0
	for _, panel := range dashboard.Panels {
		if (panel.Type == "row") != (len(panel.Targets) == 0) {
			t.Errorf("panel %q of type %s has %d queries", panel.Title, panel.Type, len(panel.Targets))
		}
		for _, target := range panel.Targets {
			asked++
			if strings.Contains(target.Expr, "tierlimit_rules_file") { // this program has no rules file
				if _, err := p.query(variables.Replace(target.Expr)); err != nil {
					t.Errorf("panel %q: %s: %v", panel.Title, target.Expr, err)
				}
				continue
			}
			series, err := p.query(variables.Replace(target.Expr))
			if err != nil || len(series) == 0 {
				t.Errorf("panel %q has no data: %s: %v", panel.Title, target.Expr, err)
			}
			for _, s := range series {
				if s.Value[1] == "NaN" && !strings.Contains(target.Expr, "redis_trip") && !strings.Contains(target.Expr, "shadow") {
					t.Errorf("panel %q: %s is no number for %v", panel.Title, target.Expr, s.Metric)
				}
			}
		}
	}
	for _, annotation := range dashboard.Annotations.List {
		if _, err := p.query(variables.Replace(annotation.Expr)); err != nil {
			t.Errorf("annotation %q: %v", annotation.Name, err)
		}
	}
	t.Logf("%d queries of the dashboard asked", asked)
}

// load sends 200 requests a second until the test ends. They come from 200 clients, a few of which send
// most requests.
func load(t *testing.T, fleet []string) {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	t.Cleanup(func() { stop(); <-done })
	go func() {
		defer close(done)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			name := i % 200
			if i%2 == 0 {
				name = i / 2 % 5
			}
			request, err := http.NewRequestWithContext(ctx, "GET", "http://"+fleet[i%len(fleet)]+"/search", nil)
			if err != nil {
				t.Error(err)
				return
			}
			if i%100 != 1 { // some requests do not name their client
				request.Header.Set("X-Client", fmt.Sprint("client-", name))
			}
			if response, err := http.DefaultClient.Do(request); err == nil {
				_, _ = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
			}
		}
	}()
}

type scraper struct{ url string }

func startPrometheus(t *testing.T, fleet []string) *scraper {
	t.Helper()
	rules, err := filepath.Abs("../../docs/monitoring/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, `
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [%q]
scrape_configs:
  - job_name: observed
    static_configs: [{targets: [%s]}]
`, rules, strings.Join(fleet, ", ")), 0o644); err != nil {
		t.Fatal(err)
	}
	addr := freeAddress(t)
	start(t, "prometheus", "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+addr, "--log.level=warn")
	p := &scraper{"http://" + addr}
	waitFor(t, "Prometheus", func() error { _, err := p.query("1"); return err })
	return p
}

type series struct {
	Metric map[string]string
	Value  [2]any // time, value as text
}

func (p *scraper) get(path string, query url.Values, data any) error {
	response, err := http.Get(p.url + path + "?" + query.Encode())
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return err
	}
	if answer.Status != "success" {
		return fmt.Errorf("%s", answer.Error)
	}
	return nil
}

func (p *scraper) query(expr string) ([]series, error) {
	var data struct {
		ResultType string
		Result     json.RawMessage
	}
	if err := p.get("/api/v1/query", url.Values{"query": {expr}}, &data); err != nil {
		return nil, err
	}
	if data.ResultType != "vector" {
		return nil, nil
	}
	var result []series
	err := json.Unmarshal(data.Result, &result)
	return result, err
}

// has returns an error unless a query returns the given number of series.
func (p *scraper) has(expr string, want int) error {
	result, err := p.query(expr)
	if err == nil && len(result) != want {
		err = fmt.Errorf("%s has %d series, want %d", expr, len(result), want)
	}
	return err
}

// alerts returns the state of each alert that is pending or firing.
func (p *scraper) alerts(t *testing.T) map[string]string {
	t.Helper()
	var data struct {
		Alerts []struct {
			Labels map[string]string
			State  string
		}
	}
	if err := p.get("/api/v1/alerts", nil, &data); err != nil {
		t.Fatal(err)
	}
	states := make(map[string]string)
	for _, alert := range data.Alerts {
		if expected.MatchString(alert.Labels["alertname"]) {
			continue
		}
		states[alert.Labels["alertname"]] = alert.State
	}
	return states
}

// expected matches the alerts that this load causes by itself: some clients send far too much, and some
// requests have no key.
var expected = regexp.MustCompile(`^Tierlimit(RuleDeniesMost|CallsAreMistaken)$`)

func (p *scraper) alerted(t *testing.T, name, state string) error {
	if got := p.alerts(t)[name]; got != state {
		return fmt.Errorf("alert %s is %q", name, got)
	}
	return nil
}

// start runs a program until the test ends.
func start(t *testing.T, program string, args ...string) {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := redistest.StartTied(cmd); err != nil {
		t.Fatalf("starting %s: %v", program, err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// waitFor waits until the condition returns no error.
func waitFor(t *testing.T, what string, condition func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for started := time.Now(); ; time.Sleep(200 * time.Millisecond) {
		err := condition()
		if err == nil {
			t.Logf("%s after %v", what, time.Since(started).Round(time.Millisecond))
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("within a minute there was not %s: %v", what, err)
		}
	}
}
