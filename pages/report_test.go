//go:build chromium

package pages

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// A report is as wide as the screen, whatever the log and its keys are called.
func TestReport(t *testing.T) {
	dir := t.TempDir()
	log, report := filepath.Join(dir, strings.Repeat("access_", 20)+".log"), filepath.Join(dir, "report.html")
	lines := strings.Repeat("1700000000.5 "+strings.Repeat("k", 64)+"\n", 30)
	if err := os.WriteFile(log, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	run := exec.Command(command(t), "report", "-limit", "3/1m", "-find", "10%", "-o", report, log)
	run.Env = append(os.Environ(), "REDIS_URL=")
	if output, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	url := "file://" + report
	b := open(t, url)
	b.run(chromedp.Navigate(url))
	b.shows("The worst window")
	b.inAllLooks("report")
}
