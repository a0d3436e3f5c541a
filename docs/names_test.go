package docs_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// everyPage returns all pages of the repository by their paths from its root, except the changelog, which describes
// the past.
func everyPage(t *testing.T) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, path := range tree(t) {
		if strings.HasSuffix(path, ".md") && path != "CHANGELOG.md" {
			text, err := os.ReadFile(filepath.Join("..", path))
			if err != nil {
				t.Fatal(err)
			}
			all[path] = string(text)
		}
	}
	if len(all) < 30 {
		t.Fatalf("%d pages", len(all))
	}
	return all
}

// tree returns the paths of all files of the repository, from its root.
func tree(t *testing.T) (all []string) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(".."), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := entry.Name(); entry.IsDir() && len(name) > 1 && strings.HasPrefix(name, ".") {
			return fs.SkipDir
		}
		if !entry.IsDir() {
			all = append(all, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

var (
	block = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	span  = regexp.MustCompile("`([^`\n]+)`")
)

// spans returns the pieces of inline code in a page's prose and tables.
func spans(text string) (all []string) {
	for _, m := range span.FindAllStringSubmatch(block.ReplaceAllString(text, ""), -1) {
		all = append(all, m[1])
	}
	return all
}

// exported returns the exported names of the packages that pages describe: "tiered.Open", "tiered.Rule.Allow" and
// "limit.Decision.Allowed". Members also appear without their package, as "Rule.Allow" and "Decision.Allowed".
func exported(t *testing.T) (names, types map[string]bool) {
	t.Helper()
	names, types = make(map[string]bool), make(map[string]bool)
	for _, folder := range []string{"tiered", "limit", "plan", "plan/traffic", "gcra", "embedded", "httplimit", "grpclimit", "promlimit", "otellimit", "rulesfile", "livepage", "tiertest"} {
		files, err := filepath.Glob(filepath.Join("..", folder, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatal(folder, err)
		}
		name := filepath.Base(folder)
		add := func(declared ...*ast.Ident) {
			for _, n := range declared {
				names[name+"."+n.Name] = true
			}
		}
		member := func(kind, n string) {
			names[name+"."+kind+"."+n], names[kind+"."+n], types[kind] = true, true, true
		}
		for _, file := range files {
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, declaration := range parsed.Decls {
				switch d := declaration.(type) {
				case *ast.FuncDecl:
					if d.Recv == nil {
						add(d.Name)
					} else if kind := receiver(d.Recv.List[0].Type); kind != "" {
						member(kind, d.Name.Name)
					}
				case *ast.GenDecl:
					for _, spec := range d.Specs {
						switch s := spec.(type) {
						case *ast.ValueSpec:
							add(s.Names...)
						case *ast.TypeSpec:
							add(s.Name)
							var fields *ast.FieldList
							switch kind := s.Type.(type) {
							case *ast.StructType:
								fields = kind.Fields
							case *ast.InterfaceType:
								fields = kind.Methods
							default:
								continue
							}
							for _, field := range fields.List {
								for _, n := range field.Names {
									member(s.Name.Name, n.Name)
								}
							}
						}
					}
				}
			}
		}
	}
	return names, types
}

func receiver(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.StarExpr:
		return receiver(x.X)
	case *ast.IndexExpr:
		return receiver(x.X)
	case *ast.Ident:
		return x.Name
	}
	return ""
}

// values maps names that pages use for a value to the value's type.
var values = map[string]string{
	"rule": "Rule", "search": "Rule", "tokens": "Rule", "limiter": "Limiter", "d": "Decision", "hold": "Hold", "slot": "Slot", "grants": "Grants", "proxies": "Proxies", "rules": "Rules",
}

// ofOthers are names in other libraries whose types have the same names as types of this one.
var ofOthers = map[string]bool{"Client.AutoPipeline": true, "Result.Allowed": true}

var qualified = regexp.MustCompile(`\b([A-Za-z]\w*)\.([A-Z]\w*)(?:\.([A-Z]\w*))?`)

// undeclared returns the names in a page that look like exported names of the library and do not exist.
func undeclared(text string, names, types map[string]bool) (all []string) {
	packages := make(map[string]bool)
	for name := range names {
		if first, _, _ := strings.Cut(name, "."); !types[first] {
			packages[first] = true
		}
	}
	for _, code := range spans(text) {
		for _, m := range qualified.FindAllStringSubmatch(code, -1) {
			first, second, third := m[1], m[2], m[3]
			switch {
			case packages[first] && types[second] && third != "":
				if !names[first+"."+second+"."+third] {
					all = append(all, m[0])
				}
			case packages[first] || types[first]:
				if !names[first+"."+second] && !ofOthers[first+"."+second] {
					all = append(all, m[0])
				}
			case values[first] != "":
				if !names[values[first]+"."+second] {
					all = append(all, m[0])
				}
			}
		}
	}
	return all
}

// The functions, options, methods and fields that a page names exist, even if they are in no snippet that
// TestSnippetsCompile compiles.
func TestNamedFunctionsExist(t *testing.T) {
	names, types := exported(t)
	for page, text := range everyPage(t) {
		for _, name := range undeclared(text, names, types) {
			t.Errorf("%s names %s, which does not exist", page, name)
		}
	}
	text := "`tiered.Open`, `tiered.Opne`, `rule.Allow(ctx)`, `rule.Alow(ctx)`, `Hold.Extnd`, `limit.Decision.Tier`, `limit.Decision.Teir`, `http.Server`\n```\ntiered.Nothing\n```\n"
	if got, want := undeclared(text, names, types), []string{"tiered.Opne", "rule.Alow", "Hold.Extnd", "limit.Decision.Teir"}; !slices.Equal(got, want) {
		t.Errorf("%q do not exist, want %q", got, want)
	}
}

var (
	testFunc  = regexp.MustCompile(`(?m)^func (Test\w+|Fuzz\w+|Example\w*)\(`)
	testName  = regexp.MustCompile(`\b(Test|Fuzz|Example)[A-Z]\w*\b`)
	lawsOf    = regexp.MustCompile(`^TestLaws?((?:\d+And)*\d+)[A-Z]`)
	lawTitle  = regexp.MustCompile(`^Law (\d+):`)
	lawListed = regexp.MustCompile("`([^`]+)`(°?)")
)

// testFunctions returns the folders that have a test function of each name.
func testFunctions(t *testing.T) map[string][]string {
	t.Helper()
	all := make(map[string][]string)
	for _, path := range tree(t) {
		if !strings.HasSuffix(path, ".go") {
			continue
		}
		text, err := os.ReadFile(filepath.Join("..", path))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range testFunc.FindAllSubmatch(text, -1) {
			all[string(m[1])] = append(all[string(m[1])], filepath.ToSlash(filepath.Dir(path)))
		}
	}
	return all
}

// The tests, examples and files that pages name exist.
func TestNamedTestsAndFilesExist(t *testing.T) {
	functions := testFunctions(t)
	files := make(map[string]bool)
	var suffixes []string
	for _, path := range tree(t) {
		files[path] = true
		suffixes = append(suffixes, "/"+path)
	}
	file := regexp.MustCompile(`^(?:[\w.-]+/)+[\w.-]+\.(?:go|lua|md|yaml|json|svg)$`)
	for page, text := range everyPage(t) {
		for _, code := range spans(text) {
			for _, name := range testName.FindAllString(code, -1) {
				if name != "FuzzName" && !strings.Contains(code, name+"…") && functions[name] == nil {
					t.Errorf("%s names %s, which does not exist", page, name)
				}
			}
			// comparison.md names files of other projects.
			if file.MatchString(code) && page != "docs/comparison.md" && !slices.ContainsFunc(suffixes, func(path string) bool { return strings.HasSuffix(path, "/"+code) }) {
				t.Errorf("%s names the file %s, which does not exist", page, code)
			}
		}
	}
}

// wrongLists returns what is wrong with the lists of tests in the page of the laws. Each list has all tests that cite
// the law in their names, under the packages that have them. Tests that do not cite the law are marked.
func wrongLists(page string, functions map[string][]string) (wrong []string) {
	listed := make(map[string]map[string]bool)
	for _, section := range strings.Split(page, "\n## ") {
		title := lawTitle.FindStringSubmatch(section)
		if title == nil {
			continue
		}
		law := title[1]
		listed[law] = make(map[string]bool)
		_, list, _ := strings.Cut(section, "*Tests.*")
		folder := ""
		for _, m := range lawListed.FindAllStringSubmatch(list, -1) {
			name, mark := m[1], m[2] != ""
			if !strings.HasPrefix(name, "Test") {
				folder = name
				continue
			}
			listed[law][name] = true
			in := func(have string) bool { return have == folder || strings.HasPrefix(have, folder+"/") }
			if !slices.ContainsFunc(functions[name], in) {
				wrong = append(wrong, fmt.Sprintf("law %s: %s is not in %s", law, name, folder))
			}
			if cited(name, law) == mark {
				wrong = append(wrong, fmt.Sprintf("law %s: %s has a mark, or lacks one", law, name))
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(functions)) {
		for law := range listed {
			if cited(name, law) && !listed[law][name] {
				wrong = append(wrong, fmt.Sprintf("law %s: %s of %s is not listed", law, name, functions[name]))
			}
		}
	}
	return wrong
}

func cited(name, law string) bool {
	m := lawsOf.FindStringSubmatch(name)
	return m != nil && slices.Contains(strings.Split(m[1], "And"), law)
}

func TestLawsListTheirTests(t *testing.T) {
	for _, wrong := range wrongLists(everyPage(t)["docs/laws.md"], testFunctions(t)) {
		t.Error(wrong)
	}
	page := "# The laws\n\n## Law 3: x\n\n*Tests.*\n- `a`: `TestLaw3A`, `TestOther`°, `TestLaw3Gone`, `TestOther`\n"
	functions := map[string][]string{"TestLaw3A": {"a"}, "TestOther": {"a"}, "TestLaws2And3B": {"b"}}
	if got := wrongLists(page, functions); len(got) != 3 {
		t.Errorf("%q, want one that is gone, one without a mark, one that is not listed", got)
	}
}

var logged = regexp.MustCompile("(?m)^\\| (WARN|INFO|ERROR) \\| `tierlimit: ([^`]+?)(?: \\.\\.\\.)?`")

// messages returns the level and text of each message that the packages log under the library's name.
func messages(t *testing.T) (all [][2]string) {
	t.Helper()
	for _, folder := range []string{"tiered", "internal/outage", "internal/lease", "rulesfile"} {
		files, err := filepath.Glob(filepath.Join("..", folder, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(parsed, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				f, ok := call.Fun.(*ast.SelectorExpr)
				if !ok || !slices.Contains([]string{"WARN", "INFO", "ERROR"}, strings.ToUpper(f.Sel.Name)) {
					return true
				}
				for _, argument := range call.Args[:min(2, len(call.Args))] {
					for b, isSum := argument.(*ast.BinaryExpr); isSum; b, isSum = argument.(*ast.BinaryExpr) {
						argument = b.X
					}
					// A message that is limited to one line in 10 s comes after its kind, which is a word or two.
					if literal, ok := argument.(*ast.BasicLit); ok && strings.Count(literal.Value, " ") > 1 {
						message := strings.TrimPrefix(strings.Trim(literal.Value, `"`), "tierlimit: ")
						all = append(all, [2]string{strings.ToUpper(f.Sel.Name), message})
					}
				}
				return true
			})
		}
	}
	return all
}

// operating.md describes all log lines, each at its level, and no others, because operators look there for a line.
func TestLoggedLinesAreDescribed(t *testing.T) {
	described := logged.FindAllStringSubmatch(everyPage(t)["docs/operating.md"], -1)
	found := make(map[string]bool)
	all := messages(t)
	if len(all) < 20 {
		t.Fatalf("%d messages", len(all))
	}
	for _, m := range all {
		i := slices.IndexFunc(described, func(d []string) bool { return d[1] == m[0] && strings.HasPrefix(m[1], d[2]) })
		if i < 0 {
			t.Errorf("operating.md does not describe the line of level %s %q", m[0], m[1])
			continue
		}
		found[described[i][0]] = true
	}
	for _, d := range described {
		if !found[d[0]] {
			t.Errorf("operating.md describes a line that is not logged: %s", d[0])
		}
	}
}
