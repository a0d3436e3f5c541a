package config

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

const (
	// maxBytes bounds a file. A control plane's message of 4 MB becomes a text of up to 40 MB.
	maxBytes = 64 << 20
	// maxDepth bounds how deeply lists and fields are nested, aliases included.
	maxDepth = 200
	// maxNodes bounds the number of nodes that come from aliases. The file's length bounds the others.
	maxNodes = 2_000_000
)

// parse returns the file's first document as a tree without aliases. It returns nil if the file has no document or a
// mistake was found.
func parse(text []byte, p *problems) *yaml.Node {
	if len(text) > maxBytes {
		p.add(&Problem{Place: Place{File: p.file}, What: fmt.Sprintf("the file has %d bytes, must have at most %d", len(text), maxBytes)})
		return nil
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var document, second yaml.Node
	err := decoder.Decode(&document)
	switch {
	case err == nil:
		err = decoder.Decode(&second)
	case errors.Is(err, io.EOF):
		return nil
	default: // the mistake may be at the beginning of the second document, because the decoder reads ahead
		first := firstDocument(text)
		if len(first) == len(text) || p.overlay || yaml.Unmarshal(first, &document) != nil {
			p.add(notYAML(p.file, err))
			return nil
		}
	}
	switch {
	case errors.Is(err, io.EOF):
	case p.overlay && err == nil: // overlays are new, so no file depends on what is only a warning elsewhere
		p.addf(&second, "a second document begins here, an overlay must be a single document")
	case p.overlay:
		p.add(notYAML(p.file, err))
	case err == nil:
		p.warnf(&second, "a second document begins here; only the first one is read")
	default:
		behind := notYAML(p.file, err)
		p.warnf(&yaml.Node{Line: behind.Line, Column: behind.Column}, "everything after the first document is ignored; %s", behind.What)
	}
	if len(document.Content) == 0 {
		return nil
	}
	x := expansion{problems: p}
	root := x.expand(document.Content[0], 0)
	if x.failed {
		return nil
	}
	return root
}

// firstDocument returns the text up to the line that ends the first document: one that begins with "..." or, after the
// document has begun, with "---" or a directive.
func firstDocument(text []byte) []byte {
	begun, at := false, 0
	for line := range bytes.Lines(text) {
		words := bytes.TrimPrefix(line, []byte("\ufeff"))
		marker, _, _ := bytes.Cut(bytes.TrimRight(words, "\r\n"), []byte(" "))
		marker, _, _ = bytes.Cut(marker, []byte("\t"))
		switch words = bytes.TrimSpace(words); {
		case string(marker) == "...", begun && (string(marker) == "---" || string(marker) == "%YAML" || string(marker) == "%TAG"):
			return text[:at]
		case len(words) > 0 && words[0] != '#' && (words[0] != '%' || begun):
			begun = true
		}
		at += len(line)
	}
	return text
}

var lineOfError = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

func notYAML(file string, err error) *Problem {
	text := err.Error()
	at := Place{File: file, Line: 1, Column: 1}
	if m := lineOfError.FindStringSubmatch(text); m != nil {
		if line, err := strconv.Atoi(m[1]); err == nil {
			at.Line = line
		}
		text = text[len(m[0]):]
	}
	return &Problem{Place: at, What: "the file is not valid YAML: " + text, Err: err}
}

// expansion replaces aliases by their nodes and merges mappings ("<<"), within bounds: a few lines of aliases can
// expand to billions of nodes, or refer to themselves.
type expansion struct {
	problems *problems
	nodes    int // that come from aliases
	inAlias  int // how many aliases are being expanded
	failed   bool
}

func (x *expansion) expand(n *yaml.Node, depth int) *yaml.Node {
	if x.inAlias > 0 {
		x.nodes++
	}
	if x.failed || depth > maxDepth || x.nodes > maxNodes {
		if !x.failed {
			x.failed = true
			x.problems.addf(n, "lists, fields and aliases are nested too deep, or are too many (at most %d levels, %d in all)", maxDepth, maxNodes)
		}
		return n
	}
	if n.Kind == yaml.AliasNode {
		x.inAlias++
		at := *x.expand(n.Alias, depth+1)
		x.inAlias--
		at.Line, at.Column = n.Line, n.Column
		return &at
	}
	if n.Kind == yaml.ScalarNode && n.Style&yaml.TaggedStyle != 0 && n.ShortTag() == "!!binary" {
		return x.decoded(n)
	}
	if len(n.Content) == 0 {
		return n
	}
	copied := *n
	copied.Content = make([]*yaml.Node, len(n.Content))
	for i, child := range n.Content {
		copied.Content[i] = x.expand(child, depth+1)
	}
	if n.Kind == yaml.MappingNode {
		x.mergeInto(&copied)
	}
	return &copied
}

// decoded returns the text that a node of !!binary has in base64. As in envoyproxy/ratelimit, it is text like any other.
// Bytes that are not UTF-8 are a mistake, because no request can have them.
func (x *expansion) decoded(n *yaml.Node) *yaml.Node {
	text, err := base64.StdEncoding.DecodeString(n.Value)
	if err != nil || !utf8.Valid(text) {
		x.problems.addf(n, "%s is tagged !!binary, must be UTF-8 text in base64", shown(n))
		return n
	}
	copied := *n
	copied.Tag, copied.Value = "!!str", string(text)
	return &copied
}

// mergeInto applies "<<". As in envoyproxy/ratelimit, the merged fields take the place of the "<<", and of several fields
// of a name the last one counts: a field before the "<<" does not override a merged one, as YAML says it should. In an
// overlay, which is new, the fields of the mapping itself do take precedence. Of several mappings that one "<<" merges,
// the first takes precedence.
func (x *expansion) mergeInto(n *yaml.Node) {
	p := x.problems
	var all, before []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.ShortTag() != "!!merge" {
			all = append(all, key, value)
			continue
		}
		from := []*yaml.Node{value}
		if value.Kind == yaml.SequenceNode {
			from = value.Content
		}
		var merged fieldSet
		for _, mapping := range slices.Backward(from) {
			if mapping.Kind == yaml.MappingNode {
				p.addMerged(&merged, mapping)
			} else {
				all = append(all, key, mapping)
			}
		}
		if p.overlay {
			before = append(before, merged.content...)
		} else {
			all = append(all, merged.content...)
		}
	}
	n.Content = append(before, all...)
}

// fieldSet has fields of merged mappings, each name once: a few lines of aliases can merge a mapping billions of times.
type fieldSet struct {
	content []*yaml.Node
	at      map[string]int // where in content the value of a name is
}

// addMerged adds the fields of a mapping. They override those that are there.
func (p *problems) addMerged(to *fieldSet, mapping *yaml.Node) {
	if to.at == nil {
		to.at = make(map[string]int)
	}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		name, value := mapping.Content[i], mapping.Content[i+1]
		if name.Kind == yaml.ScalarNode && name.Value != "" {
			if at, known := to.at[name.Value]; known {
				to.content[at] = p.override(name.Value, to.content[at], value)
				continue
			}
			to.at[name.Value] = len(to.content) + 1
		}
		to.content = append(to.content, p.merge(name), value)
	}
}

// keepOnly removes the fields with other names.
func (s *fieldSet) keepOnly(names string) {
	kept := s.content[:0]
	for i := 0; i+1 < len(s.content); i += 2 {
		if containsWord(names, s.content[i].Value) {
			kept = append(kept, s.content[i], s.content[i+1])
		}
	}
	s.content = kept
}

// override returns what a field is when another value follows the one that it has. That is the later one, but structures
// (rate_limit and metadata) count together, as in envoyproxy/ratelimit: what the later one does not say, the one before
// it does. So a descriptor that merges another one may override only a part of its rate_limit.
func (p *problems) override(name string, value, next *yaml.Node) *yaml.Node {
	if name != "rate_limit" && name != "metadata" || value.Kind != yaml.MappingNode || next.Kind != yaml.MappingNode {
		return next
	}
	var earlier fieldSet
	p.addMerged(&earlier, value)
	if name == "rate_limit" {
		earlier.keepOnly(inRateLimit)
	}
	joined := *next
	joined.Content = append(earlier.content, next.Content...)
	return &joined
}

// merge returns a copy of a field's name that comes from a merged mapping, and remembers it: a field that overrides it
// is no mistake.
func (p *problems) merge(name *yaml.Node) *yaml.Node {
	copied := *name
	if p.merged == nil {
		p.merged = make(map[*yaml.Node]bool)
	}
	p.merged[&copied] = true
	return &copied
}

// fieldOf returns the value of a mapping's field. If there are several fields of the name, the last one counts, see
// override.
func (p *problems) fieldOf(n *yaml.Node, name string) (value *yaml.Node, ok bool) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		switch {
		case n.Content[i].Value != name:
		case ok:
			p.overridden(name, value)
			value = p.override(name, value, n.Content[i+1])
		default:
			value, ok = n.Content[i+1], true
		}
	}
	return value, ok
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// text returns a scalar as it is written, or "" for null.
func (p *problems) text(n *yaml.Node, what string) string {
	switch {
	case isNull(n):
		return ""
	case n.Kind != yaml.ScalarNode:
		p.addf(n, "%s is %s, must be text", what, kindOf(n))
		return ""
	}
	return n.Value
}

// truth reads a boolean in the forms of YAML 1.1.
func (p *problems) truth(n *yaml.Node, what string) bool {
	if isNull(n) {
		return false
	}
	value, ok := truthOf(n)
	if !ok {
		p.addf(n, "%s is %s, must be true or false", what, shown(n))
	}
	return value
}

func truthOf(n *yaml.Node) (value, ok bool) {
	// A tag counts before quotes do: !!bool "true" is a boolean, and !!str true is text.
	isText := n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0
	if n.Style&yaml.TaggedStyle != 0 {
		isText = n.ShortTag() != "!!bool"
	}
	if n.Kind == yaml.ScalarNode && !isText {
		switch n.Value {
		case "true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON", "y", "Y":
			return true, true
		case "false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF", "n", "N":
			return false, true
		}
	}
	return false, false
}

// number reads a whole number of up to 32 bits.
func (p *problems) number(n *yaml.Node, what string) uint32 {
	if isNull(n) {
		return 0
	}
	var number uint64
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" || n.Decode(&number) != nil || number > 1<<32-1 {
		p.addf(n, "%s is %s, must be a whole number between 0 and %d", what, shown(n), uint32(1<<32-1))
		return 0
	}
	return uint32(number)
}

func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	return shown(n)
}

// shown returns a value in the form in which messages show it.
func shown(n *yaml.Node) string {
	if n.Kind != yaml.ScalarNode {
		return kindOf(n)
	}
	value := strings.ToValidUTF8(n.Value, "?")
	if len(value) > 60 {
		value = strings.ToValidUTF8(value[:60], "") + "..."
	}
	return strconv.Quote(value)
}
