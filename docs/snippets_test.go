// Package docs_test checks that the documentation is true: its Go compiles, and its index and links lead to existing
// pages and headings.
package docs_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A snippet is Go in a page: a whole program or file, or a fragment. A fragment is compiled as the body of a
// function, beside testdata/prelude.go, which declares the names that all fragments may use. A comment before a
// fragment, which readers do not see, declares further names:
//
//	<!-- go: var tenant string; var quota *tiered.Rule -->
//
// A block written { ... } stands for the reader's own code. A fragment that begins with func, type or var is compiled
// outside of a function. If no module of go.work has a snippet's imports, the comment names the module that has them:
// <!-- go in bench: ... -->.
type snippet struct {
	page    string
	line    int
	module  string // a folder
	declare string
	text    string
}

var fence = regexp.MustCompile("(?m)(?:^<!-- go(?: in ([a-z/]+))?:([^>]*)-->\n\n?)?^```go\n((?s:.*?))^```$")

// snippetsOf returns the snippets of a page.
func snippetsOf(page, text string) (all []snippet) {
	for _, m := range fence.FindAllStringSubmatchIndex(text, -1) {
		group := func(i int) string {
			if m[2*i] < 0 {
				return ""
			}
			return text[m[2*i]:m[2*i+1]]
		}
		s := snippet{page: page, line: 1 + strings.Count(text[:m[6]], "\n"), module: ".", declare: group(2), text: group(3)}
		if in := group(1); in != "" {
			s.module = in
		}
		all = append(all, s)
	}
	return all
}

// packages are the packages that fragments may use without an import, by name.
var packages = map[string]string{
	"atomic": "sync/atomic", "context": "context", "errors": "errors", "fmt": "fmt", "log": "log", "os": "os", "time": "time", "http": "net/http", "slog": "log/slog", "tls": "crypto/tls", "x509": "crypto/x509", "trace": "go.opentelemetry.io/otel/trace", "testing": "testing", "synctest": "testing/synctest",
	"redis": "github.com/redis/go-redis/v9", "prometheus": "github.com/prometheus/client_golang/prometheus",
	"redisotel": "github.com/redis/go-redis/extra/redisotel/v9", "grpc": "google.golang.org/grpc",
	"redis_rate": "github.com/go-redis/redis_rate/v10", "rate": "golang.org/x/time/rate", "throttled": "github.com/throttled/throttled/v2", "goredisstore": "github.com/throttled/throttled/v2/store/goredisstore.v9",
}

func init() {
	for _, name := range []string{"tiered", "limit", "plan", "httplimit", "grpclimit", "livepage", "rulesfile", "tiertest", "embedded", "promlimit", "otellimit"} {
		packages[name] = "github.com/tierlimit/tierlimit/" + name
	}
}

// file returns the snippet as a Go file.
func (s snippet) file() ([]byte, error) {
	text := strings.ReplaceAll(s.text, "{ ... }", "{}")
	if strings.HasPrefix(text, "package ") {
		return []byte(regexp.MustCompile(`^package \w+`).ReplaceAllString(text, "package snippet")), nil // no main to link
	}
	if !regexp.MustCompile(`^(//.*\n)*(func|type|var) `).MatchString(text) {
		text = fmt.Sprintf("func line%d() error {\n%s\n%s\npanic(0)}\n", s.line, s.declare, text) // may return an error
	} else {
		text = s.declare + "\n" + text
	}
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, "", "package snippet\n"+text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	used := make(map[string]bool)
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && packages[x.Name] != "" {
				used[x.Name] = true
			}
		case *ast.BlockStmt:
			n.List = withUses(n.List)
		}
		return true
	})
	var out bytes.Buffer
	out.WriteString("package snippet\n")
	for _, name := range slices.Sorted(maps.Keys(used)) {
		fmt.Fprintf(&out, "import %s %q\n", name, packages[name])
	}
	for _, declaration := range parsed.Decls {
		out.WriteString("\n")
		if err := format.Node(&out, files, declaration); err != nil {
			return nil, err
		}
		out.WriteString("\n")
	}
	return out.Bytes(), nil
}

// withUses adds a use after each declaration of a variable, because a fragment may declare variables for the reader
// to use.
func withUses(statements []ast.Stmt) (all []ast.Stmt) {
	for _, statement := range statements {
		all = append(all, statement)
		var names []*ast.Ident
		switch s := statement.(type) {
		case *ast.AssignStmt:
			for _, left := range s.Lhs {
				if name, ok := left.(*ast.Ident); ok && s.Tok == token.DEFINE {
					names = append(names, name)
				}
			}
		case *ast.DeclStmt:
			if d, ok := s.Decl.(*ast.GenDecl); ok && d.Tok == token.VAR {
				for _, spec := range d.Specs {
					names = append(names, spec.(*ast.ValueSpec).Names...)
				}
			}
		}
		for _, name := range names {
			if name.Name != "_" {
				all = append(all, &ast.AssignStmt{Lhs: []ast.Expr{ast.NewIdent("_")}, Tok: token.ASSIGN, Rhs: []ast.Expr{ast.NewIdent(name.Name)}})
			}
		}
	}
	return all
}

// compile compiles snippets in their modules, without writing into the modules. The error has the page and line of
// each snippet that does not compile.
func compile(t *testing.T, snippets []snippet) error {
	t.Helper()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	scratch := t.TempDir()
	overlay := struct{ Replace map[string]string }{make(map[string]string)}
	prelude := filepath.Join(root, "docs", "testdata", "prelude.go")
	folders := make(map[string]map[string]bool) // of each module
	var wrong []error
	for _, s := range snippets {
		text, err := s.file()
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s:%d: %w", s.page, s.line, err))
			continue
		}
		name := strings.ReplaceAll(s.page, ".", "_")
		whole := strings.HasPrefix(s.text, "package ")
		if whole {
			name = filepath.Join(name, fmt.Sprint("line", s.line)) // a whole file is a package of its own
		}
		// This name appears in the compiler's errors.
		written := filepath.Join(scratch, fmt.Sprintf("%s.line%d.go", strings.ReplaceAll(s.page, "/", "_"), s.line))
		if err := os.WriteFile(written, text, 0o600); err != nil {
			t.Fatal(err)
		}
		folder := filepath.Join("docs_snippets", name)
		absolute := filepath.Join(root, s.module, folder)
		overlay.Replace[filepath.Join(absolute, fmt.Sprintf("line%d.go", s.line))] = written
		if !whole {
			overlay.Replace[filepath.Join(absolute, "prelude.go")] = prelude
		}
		if folders[s.module] == nil {
			folders[s.module] = make(map[string]bool)
		}
		folders[s.module]["./"+filepath.ToSlash(folder)] = true
	}
	encoded, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(scratch, "overlay.json")
	if err := os.WriteFile(file, encoded, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, module := range slices.Sorted(maps.Keys(folders)) {
		build := exec.Command("go", append([]string{"build", "-overlay", file}, slices.Sorted(maps.Keys(folders[module]))...)...)
		build.Dir = filepath.Join(root, module)
		if out, err := build.CombinedOutput(); err != nil {
			wrong = append(wrong, fmt.Errorf("%w\n%s", err, out))
		}
	}
	return errors.Join(wrong...)
}

func pages(t *testing.T) map[string]string {
	t.Helper()
	all := make(map[string]string)
	names, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(names, "../README.md") {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = string(text)
	}
	return all
}

func TestSnippetsCompile(t *testing.T) {
	var all []snippet
	for page, text := range pages(t) {
		found := snippetsOf(strings.TrimPrefix(page, "../"), text)
		if want := strings.Count(text, "```go\n"); len(found) != want {
			t.Errorf("%s: %d snippets of %d are found", page, len(found), want)
		}
		all = append(all, found...)
	}
	if len(all) < 20 {
		t.Fatalf("%d snippets", len(all))
	}
	if err := compile(t, all); err != nil {
		t.Error(err)
	}
}

// TestSnippetsCompile can fail: errors have the page and line of each snippet that does not compile. All snippets are
// compiled at once, each on its own page, beside a snippet that compiles.
func TestWhatDoesNotCompileIsFound(t *testing.T) {
	const good = "text\n\n```go\nd, err := search.Allow(ctx, userID)\nif err != nil { ... }\n```\n"
	if err := compile(t, snippetsOf("good.md", good)); err != nil {
		t.Error(err)
	}
	var all []snippet
	bad := []struct{ text, where string }{
		{"```go\nsearch.Alow(ctx, userID)\n```\n", ".line8.go:"},
		{"```go\nif {\n```\n", ":8"},
		{"```go\npackage main\n\nfunc main() { nothing() }\n```\n", ".line8.go:3"},
		{"<!-- go: var n int -->\n```go\nsearch.Allow(ctx, n)\n```\n", ".line9.go:"},
		{"```go\nfunc f() int { return search }\n```\n", ".line8.go:"},
		{"<!-- go in bench: -->\n\n```go\nredis_rate.PerMinute(\"many\")\n```\n", ".line10.go:"},
		{"```go\nimport \"fmt\"\n\nfmt.Println(1)\n```\n", ":8"},
	}
	for i, b := range bad {
		all = append(all, snippetsOf(fmt.Sprintf("page%d.md", i), good+b.text)...)
	}
	err := compile(t, all)
	for i, b := range bad {
		if where := fmt.Sprintf("page%d.md%s", i, b.where); err == nil || !strings.Contains(err.Error(), where) {
			t.Errorf("%s\n%v, want %s", b.text, err, where)
		}
	}
	if err != nil && strings.Contains(err.Error(), ".line3.go:") {
		t.Errorf("of what compiles it is said that it does not:\n%v", err)
	}
}

var link = regexp.MustCompile(`\]\(([^)#:]+)?(#[^)]*)?\)`)

// The index links to every page of docs, and the links of all pages lead to existing pages and headings.
func TestLinksLeadSomewhere(t *testing.T) {
	all := everyPage(t)
	for page := range all {
		if name, isDoc := strings.CutPrefix(page, "docs/"); isDoc && name != "README.md" && !strings.Contains(all["docs/README.md"], "("+name) {
			t.Errorf("docs/README.md does not lead to %s", page)
		}
	}
	for page, text := range all {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			target, heading := m[1], m[2]
			path := page
			if target != "" {
				path = filepath.Join(filepath.Dir(page), target)
			}
			if _, err := os.Stat(filepath.Join("..", path)); err != nil {
				t.Errorf("%s: a link to %s: %v", page, target, err)
				continue
			}
			if other, known := all[path]; heading != "" && known && !slices.Contains(headings(other), heading) {
				t.Errorf("%s: %s has no heading %s", page, path, heading)
			}
		}
	}
}

var heading = regexp.MustCompile(`(?m)^#+ (.*)$`)

// headings returns a page's headings in the form of link anchors.
func headings(text string) (all []string) {
	seen := make(map[string]int)
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		name := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		name = strings.ReplaceAll(name, " ", "-")
		if seen[name]++; seen[name] > 1 {
			name += "-" + strconv.Itoa(seen[name]-1)
		}
		all = append(all, "#"+name)
	}
	return all
}
