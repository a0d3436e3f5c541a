package config

import (
	"errors"
	"fmt"
	"slices"

	"gopkg.in/yaml.v3"
)

// ErrInvalid is wrapped by every error of a configuration.
var ErrInvalid = errors.New("tierlimit: invalid configuration")

// Place is a position in a file. Lines and columns begin at 1.
type Place struct {
	File         string
	Line, Column int
}

func (p Place) String() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// Problem is one mistake in a file.
type Problem struct {
	Place
	What string
	Err  error // its cause, or nil
}

func (p *Problem) Error() string { return p.Place.String() + ": " + p.What }

// Unwrap returns ErrInvalid and the cause, if there is one.
func (p *Problem) Unwrap() []error {
	if p.Err == nil {
		return []error{ErrInvalid}
	}
	return []error{ErrInvalid, p.Err}
}

// maxProblems is how many mistakes an error lists.
const maxProblems = 20

// problems collects the mistakes and warnings of all files.
type problems struct {
	file     string
	overlay  bool                // the file is an overlay, which must be a single document
	merged   map[*yaml.Node]bool // names of fields that come from merged mappings
	found    []error
	left     int // problems beyond maxProblems
	warnings []string
}

func (p *problems) at(n *yaml.Node) Place { return Place{p.file, n.Line, n.Column} }

func (p *problems) addf(n *yaml.Node, format string, args ...any) {
	p.add(&Problem{Place: p.at(n), What: fmt.Sprintf(format, args...)})
}

func (p *problems) wrap(n *yaml.Node, err error) {
	p.add(&Problem{Place: p.at(n), What: err.Error(), Err: err})
}

func (p *problems) add(problem *Problem) {
	if slices.ContainsFunc(p.found, func(known error) bool { return known.Error() == problem.Error() }) {
		return // of a field that is read both as an earlier one of its name and as a part of the one that counts
	}
	if len(p.found) == maxProblems {
		p.left++
		return
	}
	p.found = append(p.found, problem)
}

func (p *problems) warnf(n *yaml.Node, format string, args ...any) {
	if len(p.warnings) < maxProblems {
		p.warnings = append(p.warnings, p.at(n).String()+": "+fmt.Sprintf(format, args...))
	}
}

// err returns all problems that were found as one error, or nil if there are none.
func (p *problems) err() error {
	all := p.found
	if p.left > 0 {
		all = append(all, fmt.Errorf("%w: %d more mistakes are not shown", ErrInvalid, p.left))
	}
	return errors.Join(all...)
}
