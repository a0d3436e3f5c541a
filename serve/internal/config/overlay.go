package config

import (
	"fmt"
	"strings"

	"gopkg.in/yaml.v3"
)

// Overlay sets how limits are counted, and what is done without Redis, for configurations that have no fields for it:
// a control plane's messages, and files that envoyproxy/ratelimit reads too. It is immutable and safe for concurrent
// use. A nil Overlay sets nothing.
type Overlay struct {
	entries []overlayEntry
}

// overlayEntry applies to all limits whose path its pattern matches.
type overlayEntry struct {
	at    Place
	match string
	parts []string // of match, cut at each "*"
	says  rateLimit
}

const (
	// MaxOverlayBytes bounds an overlay's file.
	MaxOverlayBytes = 1 << 20
	// maxOverlayEntries bounds the number of comparisons per limit.
	maxOverlayEntries = 1_000
)

// LoadOverlay reads an overlay. The error wraps [ErrInvalid] and lists up to twenty mistakes, each with its place.
func LoadOverlay(file File) (*Overlay, error) {
	p := &problems{file: file.Name, overlay: true}
	o := &Overlay{}
	n := parse(file.Text, p)
	if n == nil {
		if len(p.found) == 0 {
			p.add(&Problem{Place: Place{p.file, 1, 1}, What: "the file is empty, must have limits"})
		}
		return nil, p.err()
	}
	p.fields(n, "the file", inOverlay, func(_ string, value *yaml.Node) {
		for _, element := range p.list(value, "limits") {
			o.entries = append(o.entries, p.overlayEntry(element))
		}
	})
	if len(o.entries) > maxOverlayEntries {
		p.addf(n, "limits has %d entries, must have at most %d", len(o.entries), maxOverlayEntries)
	}
	if err := p.err(); err != nil {
		return nil, err
	}
	return o, nil
}

func (p *problems) overlayEntry(n *yaml.Node) overlayEntry {
	e := overlayEntry{at: p.at(n), says: rateLimit{at: n}}
	fields := 0
	p.fields(n, "an entry of limits", inOverlayEntry, func(name string, value *yaml.Node) {
		if name == "match" {
			e.match = p.text(value, name)
			return
		}
		fields++
		p.ownField(&e.says, name, value)
	})
	if n.Kind != yaml.MappingNode {
		return e // it has been reported
	}
	e.parts = strings.Split(e.match, "*")
	switch {
	case e.match == "":
		p.addf(n, "an entry of limits has no match, must have the path of a limit as -check and /rlconfig show it (* stands for any text)")
	case fields == 0:
		p.addf(n, "an entry of limits has nothing but a match, must have at least one of %s", strings.ReplaceAll(inTerms, " ", ", "))
	case e.says.windowAt != nil && e.says.multiplier > 0:
		p.addf(e.says.windowAt, "an entry of limits has both a window and a unit_multiplier, choose one of them")
	}
	p.ownFieldsTogether(&e.says, "an entry of limits")
	return e
}

// merge adds the settings of the first entry whose pattern matches the limit's path. It leaves unlimited limits
// alone, and limits that have such settings themselves.
func (o *Overlay) merge(l *rateLimit, path string) {
	if o == nil || l.own != nil || l.unlimited {
		return
	}
	for i := range o.entries {
		e := &o.entries[i]
		if !e.matches(path) {
			continue
		}
		l.terms, l.multiplier, l.overlay = e.says.terms, e.says.multiplier, e.at
		if e.says.windowAt != nil { // in place of the unit
			l.window, l.windowAt, l.unit, l.unitAt = e.says.window, l.at, "", nil
		}
		return
	}
}

func (e *overlayEntry) matches(path string) bool {
	if len(e.parts) == 1 {
		return e.match == path
	}
	return (&pattern{parts: e.parts}).matches(path)
}

// unused returns a warning for each entry that no limit uses.
func (o *Overlay) unused(limits []*Limit) (warnings []string) {
	if o == nil {
		return nil
	}
	used := make(map[Place]bool)
	for _, l := range limits {
		used[l.Overlay] = true
	}
	for i := range o.entries {
		if e := &o.entries[i]; !used[e.at] && len(warnings) < maxProblems {
			warnings = append(warnings, fmt.Sprintf("%v: match %q has no effect: no limit has such a path, or those that do are set by an earlier entry or by their own configuration", e.at, e.match))
		}
	}
	return warnings
}
