package rulesfile

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// ErrInvalidFile means that a rules file cannot be put in force. If the file's text has mistakes, the
// error that wraps ErrInvalidFile is one [Problem], or several joined.
var ErrInvalidFile = errors.New("tierlimit: invalid rules file")

// Problem is a mistake at one place of a rules file.
type Problem struct {
	File         string // as passed to Load
	Line, Column int    // from 1; columns count characters
	Err          error
}

// Error returns FILE:LINE:COLUMN: CAUSE.
func (p *Problem) Error() string {
	return fmt.Sprintf("%s:%d:%d: %v", p.File, p.Line, p.Column, p.Err)
}

// Unwrap returns [ErrInvalidFile] and the cause, such as an error that wraps limit.ErrInvalidLimit.
func (p *Problem) Unwrap() []error { return []error{ErrInvalidFile, p.Err} }

// maxProblems is the number of problems that are reported at once. Further ones are mostly the same
// mistake.
const maxProblems = 20

// problems collects the problems found so far in a file.
type problems struct {
	file string
	list []*Problem
}

func (p *problems) add(at place, err error) {
	if len(p.list) < maxProblems {
		p.list = append(p.list, &Problem{File: p.file, Line: at.line, Column: at.column, Err: err})
	}
}

func (p *problems) addf(at place, format string, args ...any) {
	p.add(at, fmt.Errorf(format, args...))
}

// err returns all problems joined, in the order of the text, or nil if there are none.
func (p *problems) err() error {
	slices.SortStableFunc(p.list, func(a, b *Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	all := make([]error, len(p.list))
	for i, problem := range p.list {
		all[i] = problem
	}
	return errors.Join(all...)
}
