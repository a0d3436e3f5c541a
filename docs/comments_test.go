package docs_test

import (
	"fmt"
	"go/ast"
	"go/doc"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const module = "github.com/tierlimit/tierlimit/"

// documented are the packages whose comments users read.
var documented = []string{"tiered", "limit", "plan", "plan/traffic", "gcra", "embedded", "httplimit", "grpclimit", "promlimit", "otellimit", "rulesfile", "livepage", "tiertest", "serve"}

// packageDoc returns a package's documentation, or that of the given sources if there are any.
func packageDoc(t *testing.T, folder string, sources ...string) *doc.Package {
	t.Helper()
	fset := token.NewFileSet()
	var files []*ast.File
	add := func(name string, source any) {
		parsed, err := parser.ParseFile(fset, name, source, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, parsed)
	}
	for i, source := range sources {
		add(fmt.Sprintf("file%d.go", i), source)
	}
	names, err := filepath.Glob(filepath.Join("..", folder, "*.go"))
	if err != nil || len(names)+len(sources) == 0 {
		t.Fatal(folder, err)
	}
	for _, name := range names {
		if len(sources) == 0 && !strings.HasSuffix(name, "_test.go") {
			add(name, nil)
		}
	}
	p, err := doc.NewFromFiles(fset, files, module+folder)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// comments returns a package's comments by the names they belong to, and the names that the package exports.
func comments(p *doc.Package) (texts map[string]string, names map[string]bool) {
	texts, names = map[string]string{"package": p.Doc}, make(map[string]bool)
	add := func(name, text string) { texts[name], names[name] = text, true }
	values := func(all []*doc.Value) {
		for _, v := range all {
			for _, name := range v.Names {
				add(name, v.Doc)
			}
		}
	}
	functions := func(of string, all []*doc.Func) {
		for _, f := range all {
			add(of+f.Name, f.Doc)
		}
	}
	values(p.Consts)
	values(p.Vars)
	functions("", p.Funcs)
	for _, kind := range p.Types {
		add(kind.Name, kind.Doc)
		values(kind.Consts)
		values(kind.Vars)
		functions("", kind.Funcs)
		functions(kind.Name+".", kind.Methods)
		for _, spec := range kind.Decl.Specs {
			if s, ok := spec.(*ast.TypeSpec); ok {
				fields := &ast.FieldList{}
				switch s := s.Type.(type) {
				case *ast.StructType:
					fields = s.Fields
				case *ast.InterfaceType:
					fields = s.Methods
				}
				for _, field := range fields.List {
					for _, name := range field.Names {
						add(kind.Name+"."+name.Name, field.Doc.Text()+field.Comment.Text())
					}
				}
			}
		}
	}
	return texts, names
}

var unlinked = regexp.MustCompile(`\[\*?(?:\w+\.)?[A-Z]\w*(?:\.[A-Z]\w*)?\]`)

// deadLinks returns links in a package's comments that lead nowhere. It also returns text that looks like a link but
// is none, because its package is not imported.
func deadLinks(p *doc.Package, names map[string]map[string]bool) (dead []string) {
	texts, _ := comments(p)
	for of, text := range texts {
		var inline func([]comment.Text)
		var blocks func([]comment.Block)
		inline = func(all []comment.Text) {
			for _, x := range all {
				switch x := x.(type) {
				case comment.Plain:
					for _, link := range unlinked.FindAllString(string(x), -1) {
						dead = append(dead, of+": "+link)
					}
				case *comment.Link:
					inline(x.Text)
				case *comment.DocLink:
					folder, ours := strings.CutPrefix(x.ImportPath, module)
					name := x.Name
					if x.Recv != "" {
						name = x.Recv + "." + x.Name
					}
					if known := names[folder]; ours && known != nil && name != "" && !known[name] {
						dead = append(dead, fmt.Sprintf("%s: %s.%s", of, folder, name))
					}
				}
			}
		}
		blocks = func(all []comment.Block) {
			for _, b := range all {
				switch b := b.(type) {
				case *comment.Paragraph:
					inline(b.Text)
				case *comment.Heading:
					inline(b.Text)
				case *comment.List:
					for _, item := range b.Items {
						blocks(item.Content)
					}
				}
			}
		}
		blocks(p.Parser().Parse(text).Content)
	}
	return dead
}

// Links in comments lead to existing names on pkg.go.dev.
func TestLinksInCommentsLeadSomewhere(t *testing.T) {
	names := make(map[string]map[string]bool)
	for _, folder := range documented {
		_, names[folder] = comments(packageDoc(t, folder))
	}
	for _, folder := range documented {
		for _, link := range deadLinks(packageDoc(t, folder), names) {
			t.Errorf("%s: of %s, which does not exist or whose package is not imported", folder, link)
		}
	}
	const source = "package x\n\nimport \"github.com/tierlimit/tierlimit/limit\"\n\n// A is [limit.Per] and [limit.Pre], [B] and [Limiter.Allow], [tiered.Open].\nvar A limit.Limit\n"
	if got := deadLinks(packageDoc(t, "x", source), names); len(got) != 4 {
		t.Errorf("%q, want limit.Pre, B, Limiter.Allow and tiered.Open", got)
	}
}
