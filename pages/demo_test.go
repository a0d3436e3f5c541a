//go:build chromium

package pages

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

// command builds the command and returns its file.
func command(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "tierlimit")
	build := exec.Command("go", "build", "-o", binary, "./cmd/tierlimit")
	build.Dir = ".."
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	return binary
}

// runDemo runs the command's demo, and returns the page's address.
func runDemo(t *testing.T) string {
	t.Helper()
	demo := exec.Command(command(t), "demo", "-addr", "127.0.0.1:0")
	demo.Env = append(os.Environ(), "REDIS_URL=") // as for a user who tries the demo
	stdout, err := demo.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := redistest.StartTied(demo); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := demo.Process.Signal(os.Interrupt); err != nil {
			t.Error(err)
		}
		if err := demo.Wait(); err != nil {
			t.Error(err)
		}
	})
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if address, _, ok := strings.Cut(lines.Text(), " "); ok && strings.HasPrefix(address, "http://") {
			return address
		}
	}
	t.Fatal("the demo does not say where its page is")
	return ""
}

// The demo works before, during and after a cut of all instances and of one, by keyboard alone.
func TestDemo(t *testing.T) {
	url := runDemo(t)
	b := open(t, url)
	b.run(chromedp.Navigate(url))
	b.shows("Live.")
	play := func(seconds int) { // lets the demo run, so that there is something to see
		t.Helper()
		time.Sleep(time.Duration(seconds) * time.Second)
	}
	play(20)
	b.inAllLooks("demo-before")
	roles := b.roles()
	for role, least := range map[string]int{"banner": 1, "main": 1, "article": 4, "image": 5, "button": 8, "status": 2, "combobox": 1} {
		if roles[role] < least {
			t.Errorf("a screen reader finds %d of role %s, want at least %d: %v", roles[role], role, least, roles)
		}
	}

	b.tabTo(`button[name=cut][value=all]`)
	b.run(chromedp.KeyEvent(kb.Enter))
	b.shows("All four instances decide without Redis. Cut: 1, 2, 3, 4.")
	if !eval[bool](b, `document.activeElement.matches("button[name=cut][value=all]")`) {
		t.Error("the focus was lost with an update")
	}
	play(15)
	b.inAllLooks("demo-during")
	b.tabTo(`button[name=restore][value="3"]`)
	b.run(chromedp.KeyEvent(" "))
	b.shows("1 of four instances decide with Redis. Cut: 1, 2, 4.")
	b.tabTo(`button[name=restore][value=all]`)
	b.run(chromedp.KeyEvent(" "))
	b.shows("Redis decides for all four instances.")
	play(12)
	b.inAllLooks("demo-after")

	b.run(chromedp.SetValue(chromedp.CSS("select[name=speed]"), "300"), chromedp.Click(chromedp.CSS("form.fields button:not([name])")))
	b.shows("at 300 times the speed")
	b.run(chromedp.Click(chromedp.CSS(`a[href="instance/2/"]`)))
	b.shows("Hottest keys")
	b.shows("Live.")
	b.inAllLooks("demo-instance")
}
