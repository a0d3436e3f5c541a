// Package page writes a study as one self-contained HTML file. Plots are inline SVG. The file is
// readable in light and dark mode, on a phone, and printed.
package page

import (
	_ "embed" // for the page
	"fmt"
	"html/template"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tierlimit/tierlimit/cmd/tierlimit/internal/study"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/plan"
	"github.com/tierlimit/tierlimit/remote"
)

// Page has the content of the report.
type Page struct {
	Limit       limit.Limit
	Source      string // name of a log, or of a load
	SourceWords string // a sentence about the source; may be empty
	Span        string // the times of the first and the last request
	Requests    int
	Keys        int
	ExactDenied int

	Plan   plan.Plan
	Chosen study.Point
	Points []study.Point

	Frontier, OverTime Picture
	Windows            []WindowPicture
	Tiers              *Tiers // nil if the requests were not replayed
	Checked            int    // requests that the real script also decided
	FindPart           float64
	Proposals          []study.Proposal
	Picks              []Pick
}

// WindowPicture is a worst window and its picture.
type WindowPicture struct {
	Window  study.Window
	Picture Picture
}

// Tiers counts which tier decided the requests that went through a limiter.
type Tiers struct {
	Requests, Local int
	Redis           string // which Redis was used
}

// Remote returns the number of requests that Redis decided.
func (t Tiers) Remote() int { return t.Requests - t.Local }

// LocalPart returns the part of the requests that was decided in process.
func (t Tiers) LocalPart() float64 { return float64(t.Local) / float64(max(1, t.Requests)) }

// LocalWidth returns LocalPart in percent.
func (t Tiers) LocalWidth() float64 { return 100 * t.LocalPart() }

// Pick is the configuration that is chosen for a need.
type Pick struct {
	Need, Configuration  string
	BytesFull, WorstCase int64
}

//go:embed page.html
var source string

var page = template.Must(template.New("page").Funcs(template.FuncMap{"percent": percent, "key": shownKey, "count": Count}).Parse(source))

// shownKey returns a key in a form that people can read. Anyone may choose keys, even keys that change
// the writing direction of the text after them. Of a long key, a trace has only a hash.
func shownKey(key string) string {
	if said, whole := remote.UserKey(key).Original(); !whole {
		return "a long key, with hash " + said
	}
	if quoted := strconv.Quote(key); !utf8.ValidString(key) || strings.ContainsFunc(key, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return quoted
	}
	return key
}

// Count returns a number of things in words, like "1 key" or "2 keys".
func Count(n any, thing string) string {
	if number := fmt.Sprint(n); number != "1" {
		return number + " " + thing + "s"
	}
	return "1 " + thing
}

// Write writes the page.
func Write(w io.Writer, p Page) error { return page.Execute(w, p) }
