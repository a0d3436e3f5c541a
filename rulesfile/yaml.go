package rulesfile

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// place is a position in a file. Lines and columns count from 1.
type place struct{ line, column int }

const (
	// maxBytes bounds the size of a file, and so the time to read it. That time is linear in the size,
	// except for the work that the other bounds limit.
	maxBytes = 256 << 10
	// maxFields bounds the fields of a file, and the entries in lists and braces. For each field, the
	// parser copies all fields that follow in the same mapping. For 10,000 fields, this takes 0.4 s and
	// allocates 400 MB in total.
	maxFields = 10_000
	// maxDepth bounds how deep lists and fields are nested. The parser's memory grows with the square
	// of the depth. Rules need a depth of 4.
	maxDepth = 16
	// maxMarks bounds the lines that begin or end a document, --- and .... For each document, the parser
	// copies all that follow. A rules file needs none of these lines, or one of each.
	maxMarks = 16
	// maxTabs bounds the tabs of a line. For each tab in double quotes, the lexer reads the rest of the line.
	maxTabs = 1000
	// maxBlank bounds how many blank lines follow one another. At the end of a block of text, the lexer copies the
	// whole block for each of them.
	maxBlank = 50
)

// parse returns the file's only document, or nil if it has none. Mistakes are added to the problems.
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
	if at, what := slowToRead(text); what != "" {
		p.addf(at, "%s", what)
		return nil
	}
	tokens := lexer.Tokenize(string(text))
	if t := tooDeep(tokens); t != nil {
		p.addf(placeOf(t), "lists or fields are nested more than %d deep", maxDepth)
		return nil
	}
	field, entry := beyond(maxFields, tokens, token.MappingValueType), beyond(maxFields, tokens, token.CollectEntryType, token.SequenceEntryType)
	if t := cmp.Or(field, entry); t != nil {
		p.addf(placeOf(t), "the file has more than %d fields or entries; keep a longer list of keys and their plans in the program", maxFields)
		return nil
	}
	if t := beyond(maxMarks, tokens, token.DocumentHeaderType, token.DocumentEndType); t != nil {
		p.addf(placeOf(t), "the file has more than %d lines of --- or ...; a rules file must be a single document", maxMarks)
		return nil
	}
	if t := withTab(tokens); t != nil {
		p.addf(placeOf(t), "text without quotes contains a tab, put it in quotes")
		return nil
	}
	file, err := parser.Parse(tokens, 0)
	if err != nil {
		at := place{1, 1}
		if e, ok := errors.AsType[yaml.Error](err); ok {
			if e.GetToken() != nil {
				at = placeOf(e.GetToken()).within(text)
			}
			// The error's own text would show the lines around the mistake, in a time that grows with
			// the square of their length.
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

// withoutName drops the name of a field that occurs twice from the parser's message. The name may be a
// user's key, which must not be logged. The places of both fields are still reported.
func withoutName(message string) string {
	const of, says = `mapping key "`, `" already defined at `
	if at := strings.LastIndex(message, says); at >= 0 && strings.HasPrefix(message, of) {
		return "this name is already defined at " + message[at+len(says):]
	}
	return message
}

// withoutTab replaces the parser's message about a tab, the most frequent mistake, by one that says what to do.
func withoutTab(message string) string {
	return strings.Replace(message, "found character '\t' that cannot start any token", "a tab cannot indent, write spaces", 1)
}

// within moves a place to the end of its line if its column is too large. The library counts too far
// after some mistakes in quotes.
func (at place) within(text []byte) place {
	lines := bytes.Split(text, []byte("\n"))
	at.line = min(at.line, len(lines))
	at.column = min(at.column, utf8.RuneCount(lines[at.line-1])+1)
	return at
}

// inUTF8 drops the byte order mark that some editors write before UTF-8. ok is false if the text is in
// UTF-16 or UTF-32, where the first character of a rules file, which is one of ASCII, has a zero byte.
func inUTF8(text []byte) (_ []byte, ok bool) {
	const mark = "\uFEFF"
	if bytes.IndexByte(text[:min(4, len(text))], 0) >= 0 {
		return nil, false
	}
	return bytes.TrimPrefix(text, []byte(mark)), true
}

// invalidText returns the place of the first byte that is not valid UTF-8. ok is true if there is none.
func invalidText(text []byte) (place, bool) {
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && n == 1 {
			good := text[:i]
			line := good[bytes.LastIndexByte(good, '\n')+1:]
			return place{bytes.Count(good, []byte("\n")) + 1, utf8.RuneCount(line) + 1}, false
		}
		i += n
	}
	return place{}, true
}

// slowToRead returns the first line with too many tabs, or the first one after too many blank lines, and says what is
// wrong. what is empty if there is none.
func slowToRead(text []byte) (at place, what string) {
	at = place{1, 1}
	tabs, blanks, blank := 0, 0, true
	for i, c := range text {
		switch {
		case c == '\t':
			tabs++
		case c == '\r' && i+1 < len(text) && text[i+1] == '\n':
		case c == '\n' || c == '\r': // YAML allows a lone \r, too
			if blanks++; !blank {
				blanks = 0
			}
			tabs, blank = 0, true
		case c != ' ':
			blank = false
		}
		switch {
		case tabs > maxTabs:
			return at, fmt.Sprintf("the line has more than %d tabs", maxTabs)
		case blanks > maxBlank:
			return at, fmt.Sprintf("more than %d blank lines follow one another", maxBlank)
		}
		if c == '\n' {
			at.line++
		}
	}
	return at, ""
}

// tooDeep returns the first token that is nested deeper than maxDepth, by brackets, or by the columns in
// which lines, dashes and question marks begin. As a list may begin in the column of its field, and a field
// right behind a dash, one column stands for up to three levels.
func tooDeep(tokens token.Tokens) *token.Token {
	brackets, line := 0, 0
	var columns []int // each larger than the one before
	for _, t := range tokens {
		begins := t.Position.Line != line
		line = t.Position.Line
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			brackets++
		case token.SequenceEndType, token.MappingEndType:
			brackets--
		case token.SequenceEntryType, token.MappingKeyType:
			begins = true
		case token.CommentType:
			begins = false
		}
		if begins && brackets == 0 {
			for len(columns) > 0 && columns[len(columns)-1] >= t.Position.Column {
				columns = columns[:len(columns)-1]
			}
			columns = append(columns, t.Position.Column)
		}
		if brackets > maxDepth || len(columns) > maxDepth {
			return t
		}
	}
	return nil
}

// beyond returns the first token of the given types after the number of them that is allowed.
func beyond(allowed int, tokens token.Tokens, types ...token.Type) *token.Token {
	for _, t := range tokens {
		if slices.Contains(types, t.Type) {
			allowed--
		}
		if allowed < 0 {
			return t
		}
	}
	return nil
}

// withTab returns the first text without quotes that contains a tab. The lexer drops such tabs, so the
// text, such as a key, would become another one.
func withTab(tokens token.Tokens) *token.Token {
	for _, t := range tokens {
		if isPlain(t) && strings.Contains(strings.Trim(t.Origin, " \t\r\n"), "\t") {
			return t
		}
	}
	return nil
}

// isPlain reports whether a token is text without quotes. What looks like a number without its tabs, for
// example, has a type of its own.
func isPlain(t *token.Token) bool {
	switch t.Type {
	case token.StringType, token.BoolType, token.NullType, token.InfinityType, token.NanType, token.FloatType,
		token.IntegerType, token.BinaryIntegerType, token.OctetIntegerType, token.HexIntegerType:
		return true
	}
	return false
}

func placeOf(t *token.Token) place { return place{t.Position.Line, t.Position.Column} }

// at returns the place where a node begins. For a mapping without braces, the library returns the place
// of the first colon instead.
func at(n ast.Node) place {
	if m, ok := n.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		return at(m.Values[0].Key)
	}
	return placeOf(n.GetToken())
}

// field is one name and value of a mapping.
type field struct {
	name  string
	at    place
	value ast.Node
}

// fields returns a mapping's fields, in their order. No name occurs twice, because the library refuses
// such a file.
func (p *problems) fields(n ast.Node, what string) []field {
	m, ok := n.(*ast.MappingNode)
	if !ok {
		p.unlike(n, what, "a mapping (NAME: VALUE)")
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

// text returns a value as it is written in the file, without quotes.
func (p *problems) text(f field, like string) (string, bool) {
	text, ok := plain(f.value)
	if !ok || f.value.Type() == ast.NullType || text == "" {
		p.unlike(f.value, f.name, like)
		return "", false
	}
	return text, true
}

// unlike reports that a value is not of the expected kind.
func (p *problems) unlike(n ast.Node, what, like string) {
	is := "not a plain value"
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
			is = quoted(text)
		}
	}
	p.addf(at(n), "%s is %s, must be %s", what, is, like)
}

// quoted returns a text in quotes, because it may contain control sequences for the terminal, or only its beginning: a
// file that is no rules file, such as a log, may be a single text.
func quoted(text string) string {
	const most = 100
	if len(text) <= most {
		return strconv.Quote(text)
	}
	return strconv.Quote(text[:most]) + "..."
}

// plain returns a scalar as it is written in the file: 007 is these three digits and not the number 7.
func plain(n ast.Node) (string, bool) {
	switch v := n.(type) {
	case *ast.StringNode:
		return v.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, true
	}
	return "", false
}
