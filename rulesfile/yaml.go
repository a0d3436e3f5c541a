package rulesfile

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// place is where something stands in a file, from 1.
type place struct{ line, column int }

const (
	// maxBytes bounds a file, and with it the time to read it, which is linear but for
	// maxFields.
	maxBytes = 256 << 10
	// maxFields bounds the fields of a file, and the entries in lists and braces: the parser
	// copies, for each field, all that follow in the same mapping, which makes 0.4 s, and
	// 400 MB one after another, for so many.
	maxFields = 10_000
	// maxDepth bounds how deep lists and fields lie in each other, for which the parser
	// takes memory that grows with the square of it. Rules need 4.
	maxDepth = 16
)

// parse returns the file's only document, nil if there is none. What is wrong is added to
// the problems.
func parse(text []byte, p *problems) ast.Node {
	text, ok := inUTF8(text)
	if !ok {
		p.addf(place{1, 1}, "the file is in UTF-16 or UTF-32, must be text in UTF-8")
		return nil
	}
	if at, ok := invalidText(text); !ok {
		p.addf(at, "the file is not text in UTF-8")
		return nil
	}
	tokens := lexer.Tokenize(string(text))
	if t := tooDeep(tokens); t != nil {
		p.addf(placeOf(t), "lists or fields are nested more than %d deep", maxDepth)
		return nil
	}
	if t := tooMany(tokens); t != nil {
		p.addf(placeOf(t), "the file has more than %d fields or entries; a longer list of who is on which plan belongs into the program", maxFields)
		return nil
	}
	if t := withTab(tokens); t != nil {
		p.addf(placeOf(t), "text without quotes contains a tab, write it in quotes")
		return nil
	}
	file, err := parser.Parse(tokens, 0)
	if err != nil {
		at := place{1, 1}
		if e := yaml.Error(nil); errors.As(err, &e) {
			if e.GetToken() != nil {
				at = placeOf(e.GetToken()).within(text)
			}
			// Its Error would draw the lines around, in a time that grows with the square
			// of their length.
			err = errors.New(withoutName(withoutTab(e.GetMessage())))
		}
		p.addf(at, "the file is not valid YAML: %w", err)
		return nil
	}
	var body ast.Node
	for _, document := range file.Docs {
		switch {
		case document.Body == nil:
		case body == nil:
			body = document.Body
		default:
			p.addf(at(document.Body), "a second document begins here, or a directive precedes the first; a rules file must be a single document")
			return nil
		}
	}
	return body
}

// withoutName drops the name of a field that comes twice: it may be a user's key, which no
// log may have. The places of both are told.
func withoutName(message string) string {
	const of, says = `mapping key "`, `" already defined at `
	if at := strings.LastIndex(message, says); at >= 0 && strings.HasPrefix(message, of) {
		return "this name is already defined at " + message[at+len(says):]
	}
	return message
}

// withoutTab says of the most frequent mistake what to do.
func withoutTab(message string) string {
	return strings.Replace(message, "found character '\t' that cannot start any token", "a tab cannot indent, write spaces", 1)
}

// within moves a place to the end of its line where the library counted too far, as it
// does after some mistakes in quotes.
func (at place) within(text []byte) place {
	lines := bytes.Split(text, []byte("\n"))
	at.line = min(at.line, len(lines))
	at.column = min(at.column, utf8.RuneCount(lines[at.line-1])+1)
	return at
}

// inUTF8 drops the byte order mark that some editors write before UTF-8. Text in wider
// units, for which they write other marks, has a zero byte in its first character: ok is
// false.
func inUTF8(text []byte) (_ []byte, ok bool) {
	const mark = "\uFEFF"
	begin := text[:min(4, len(text))]
	if bytes.HasPrefix(begin, []byte("\xff\xfe")) || bytes.HasPrefix(begin, []byte("\xfe\xff")) || bytes.IndexByte(begin, 0) >= 0 {
		return nil, false
	}
	return bytes.TrimPrefix(text, []byte(mark)), true
}

// invalidText finds the first byte that is no text.
func invalidText(text []byte) (place, bool) {
	if utf8.Valid(text) {
		return place{}, true
	}
	good := text
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && n == 1 {
			good = text[:i]
			break
		}
		i += n
	}
	line := good[bytes.LastIndexByte(good, '\n')+1:]
	return place{bytes.Count(good, []byte("\n")) + 1, utf8.RuneCount(line) + 1}, false
}

// tooDeep returns where text goes deeper than maxDepth by brackets, or by dashes and
// question marks of one line. Deeper by indentation takes more text than a file may have.
func tooDeep(tokens token.Tokens) *token.Token {
	brackets, dashes, line := 0, 0, 0
	for _, t := range tokens {
		if t.Position.Line != line {
			line, dashes = t.Position.Line, 0
		}
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			brackets++
		case token.SequenceEndType, token.MappingEndType:
			brackets--
		case token.SequenceEntryType, token.MappingKeyType:
			dashes++
		}
		if brackets > maxDepth || dashes > maxDepth {
			return t
		}
	}
	return nil
}

// tooMany returns the first field or entry beyond maxFields.
func tooMany(tokens token.Tokens) *token.Token {
	fields, entries := 0, 0
	for _, t := range tokens {
		switch t.Type {
		case token.MappingValueType:
			fields++
		case token.CollectEntryType, token.SequenceEntryType:
			entries++
		}
		if fields > maxFields || entries > maxFields {
			return t
		}
	}
	return nil
}

// withTab returns the first text without quotes that has a tab in it. The lexer drops such tabs, so
// that the text, such as a key, would be another one.
func withTab(tokens token.Tokens) *token.Token {
	for _, t := range tokens {
		if t.Type == token.StringType && strings.Contains(strings.Trim(t.Origin, " \t\r\n"), "\t") {
			return t
		}
	}
	return nil
}

func placeOf(t *token.Token) place { return place{t.Position.Line, t.Position.Column} }

// at is where a node begins. Of a mapping without braces the library says where its
// first colon is.
func at(n ast.Node) place {
	if m, ok := n.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		return at(m.Values[0].Key)
	}
	return placeOf(n.GetToken())
}

// field is a name and its value, of a mapping.
type field struct {
	name  string
	at    place
	value ast.Node
}

// fields returns a mapping's fields, in their order. None comes twice: the library has
// seen to that.
func (p *problems) fields(n ast.Node, what string) []field {
	m, ok := n.(*ast.MappingNode)
	if !ok {
		p.unlike(n, what, "fields, each NAME: VALUE")
		return nil
	}
	fields := make([]field, 0, len(m.Values))
	for _, v := range m.Values {
		name, ok := plain(v.Key)
		switch {
		case !ok:
			p.addf(at(v.Key), "the name of a field in %s is not plain text", what)
			continue
		case name == "":
			p.addf(at(v.Key), "the name of a field in %s is empty", what)
			continue
		}
		fields = append(fields, field{name: name, at: at(v.Key), value: v.Value})
	}
	return fields
}

// text returns a value as it is written, without quotes.
func (p *problems) text(f field, like string) (string, bool) {
	text, ok := plain(f.value)
	if !ok || f.value.Type() == ast.NullType || text == "" {
		p.unlike(f.value, f.name, like)
		return "", false
	}
	return text, true
}

// unlike says that a value is not of the kind that is wanted.
func (p *problems) unlike(n ast.Node, what, like string) {
	is := "something else"
	switch n.Type() {
	case ast.NullType:
		is = "empty"
	case ast.MappingType:
		is = "a mapping"
	case ast.SequenceType:
		is = "a list"
	case ast.LiteralType:
		is = "a block of text"
	case ast.AnchorType, ast.AliasType, ast.MergeKeyType:
		is = "an anchor or alias (rules files have none; write the value out)"
	case ast.TagType:
		is = "tagged (rules files have no tags)"
	default:
		if text, ok := plain(n); ok {
			is = strconv.Quote(text) // which may be meant for the terminal that it is printed on
		}
	}
	p.addf(at(n), "%s is %s, must be %s", what, is, like)
}

// plain is a scalar as it is written: 007 is no number but these three digits.
func plain(n ast.Node) (string, bool) {
	switch v := n.(type) {
	case *ast.StringNode:
		return v.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, true
	}
	return "", false
}
