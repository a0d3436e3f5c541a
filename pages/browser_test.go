//go:build chromium

package pages

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// browser is a tab, with a record of what should not have happened in it.
type browser struct {
	t   *testing.T
	ctx context.Context

	mu      sync.Mutex // guards the fields below
	faults  []string   // errors, dialogs, violations of the security policy
	fetched []string
}

// aName is a name for this machine in the browser. Unlike localhost, browsers do not trust it without TLS.
const aName = "limits.example.org"

// open starts a browser. At its end, the test fails if there were faults, or if anything was fetched from elsewhere
// than origin.
func open(t *testing.T, origin string) *browser {
	t.Helper()
	options := []chromedp.ExecAllocatorOption{
		chromedp.UserDataDir(t.TempDir()),
		chromedp.Flag("host-resolver-rules", "MAP "+aName+" 127.0.0.1"),
	}
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	ctx, stop := chromedp.NewContext(context.Background(), chromedp.WithAllocatorOptions(options...))
	t.Cleanup(func() { _ = chromedp.Cancel(ctx); stop() })
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("starting Chromium: %v; is it installed, and on PATH? (Debian: apt-get install chromium)", err)
	}
	b := &browser{t: t, ctx: ctx}
	if err := chromedp.Listen(ctx, b.listen); err != nil {
		t.Fatal(err)
	}
	call(b, network.Enable, network.EnableParams{})
	call(b, log.Enable, cdp.Empty{})
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, fault := range b.faults {
			t.Errorf("in the browser: %s", fault)
		}
		for _, url := range b.fetched {
			if !strings.HasPrefix(url, origin) && !strings.HasPrefix(url, "data:,") {
				t.Errorf("fetched from elsewhere: %s", url)
			}
		}
	})
	return b
}

func (b *browser) listen(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		b.fetched = append(b.fetched, e.Request.URL)
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			b.faults = append(b.faults, e.Entry.Text)
		}
	case *runtime.EventExceptionThrown:
		b.faults = append(b.faults, e.ExceptionDetails.Text)
	case *page.EventJavascriptDialogOpening:
		b.faults = append(b.faults, "dialog: "+e.Message)
	}
}

func (b *browser) run(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// call runs a command of the browser's protocol.
func call[P, R any](b *browser, command cdp.Command[P, R], params P) R {
	b.t.Helper()
	result, err := chromedp.Call(b.ctx, command, params)
	if err != nil {
		b.t.Fatal(err)
	}
	return result
}

// eval returns the value of an expression.
func eval[T any](b *browser, expression string) T {
	b.t.Helper()
	value, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return value
}

// prefers emulates a preference that a media feature expresses.
func (b *browser) prefers(feature, value string) {
	b.t.Helper()
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: feature, Value: value}}})
}

// until waits until an expression is true. While the browser leaves a document it does not answer, so the expression is
// asked for again in the next one.
func (b *browser) until(expression string) {
	b.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		value, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool](expression))
		switch {
		case err != nil && !strings.Contains(err.Error(), "Inspected target navigated or closed"):
			b.t.Fatalf("%s: %v", expression, err)
		case value:
			return
		case time.Now().After(deadline):
			b.t.Fatalf("waited in vain for %s in:\n%s", expression, b.text())
		}
	}
}

// submits runs actions that submit a form, and waits for the document that answers it. What the old document shows
// would otherwise pass for the answer.
func (b *browser) submits(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	eval[bool](b, `window.isLeft = true`)
	b.run(actions...)
	b.until(`window.isLeft === undefined && document.readyState === "complete"`)
}

func (b *browser) text() string { return eval[string](b, "document.body.innerText") }

// shows waits until the page shows a text.
func (b *browser) shows(text string) {
	b.t.Helper()
	b.until(fmt.Sprintf("document.body?.innerText.includes(%q) === true", text))
}

// tabTo presses Tab until an element that matches has the focus.
func (b *browser) tabTo(selector string) {
	b.t.Helper()
	b.until(`document.readyState === "complete"`) // the style must be loaded
	for range 100 {
		b.run(chromedp.KeyEvent("\t"))
		if eval[bool](b, fmt.Sprintf("document.activeElement?.matches(%q) === true", selector)) {
			if !eval[bool](b, "document.activeElement.matches(':focus-visible')") || eval[string](b, "getComputedStyle(document.activeElement).outlineStyle") == "none" {
				b.t.Errorf("the focus on %s cannot be seen", selector)
			}
			return
		}
	}
	b.t.Fatalf("Tab does not lead to %s", selector)
}

// look is a screen and color scheme in which to view the page.
type look struct {
	name          string
	width, height int64
	dark          bool
}

var looks = []look{
	{"desktop-light", 1200, 900, false}, {"desktop-dark", 1200, 900, true},
	{"phone-light", 390, 844, false}, {"phone-dark", 390, 844, true},
}

// inAllLooks checks the page on desktop and phone, in light and dark. It saves screenshots in $PAGES_OUT if that is
// set.
func (b *browser) inAllLooks(name string) {
	b.t.Helper()
	for _, l := range looks {
		scheme := "light"
		if l.dark {
			scheme = "dark"
		}
		call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
			Width: l.width, Height: l.height, DeviceScaleFactor: 1, Mobile: l.width < 600,
		})
		b.prefers("prefers-color-scheme", scheme)
		if width := eval[int64](b, "document.documentElement.scrollWidth"); width > l.width {
			b.t.Errorf("%s, %s: the page is %d wide", name, l.name, width)
		}
		for _, faint := range eval[[]string](b, faintTexts) {
			b.t.Errorf("%s, %s: hard to read: %s", name, l.name, faint)
		}
		if dir := os.Getenv("PAGES_OUT"); dir != "" {
			png, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
			if err != nil {
				b.t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name+"-"+l.name+".png"), png, 0o644); err != nil {
				b.t.Error(err)
			}
		}
	}
	call(b, emulation.ClearDeviceMetricsOverride, cdp.Empty{})
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{})
}

// faintTexts lists texts with less contrast than the 4.5 that WCAG 2, 1.4.3, requires.
const faintTexts = `(() => {
	const parse = (c) => c.match(/[\d.]+/g).map(Number);
	const luminance = ([r, g, b]) => [r, g, b].map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
		.reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
	const behind = (e) => {
		for (; e; e = e.parentElement) {
			const c = parse(getComputedStyle(e).backgroundColor);
			if (c.length < 4 || c[3] > 0) return c;
		}
		return parse(getComputedStyle(document.body).backgroundColor);
	};
	const faint = [];
	for (const e of document.querySelectorAll("body *")) {
		if (![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim())) continue;
		const [a, b] = [luminance(parse(getComputedStyle(e).color)), luminance(behind(e))];
		const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
		if (contrast < 4.5) faint.push(contrast.toFixed(2) + ": " + e.textContent.trim().slice(0, 40));
	}
	return faint;
})()`

// roles counts the roles that a screen reader finds. The test fails if an element lacks a name that its role
// requires.
func (b *browser) roles() map[string]int {
	b.t.Helper()
	found := map[string]int{}
	for _, node := range call(b, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{}).Nodes {
		if node.Ignored || node.Role == nil {
			continue
		}
		role := strings.Trim(string(node.Role.Value), `"`)
		found[role]++
		name := ""
		if node.Name != nil {
			name = strings.Trim(string(node.Name.Value), `"`)
		}
		switch role {
		case "button", "link", "textbox", "combobox", "table", "region", "image", "heading", "columnheader", "rowheader", "article":
			if name == "" {
				b.t.Errorf("a screen reader finds a %s without a name (node %v)", role, node.BackendDOMNodeID)
			}
		}
	}
	return found
}
