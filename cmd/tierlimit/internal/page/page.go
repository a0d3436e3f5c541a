// Package page writes a study as one HTML file that needs nothing else: plots are SVG
// inside it, and it is readable in light and dark, on a phone, and printed.
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

// Page is what the report says.
type Page struct {
	Limit       limit.Limit
	Source      string // a log's name, or a load's
	SourceWords string // more of it, in a sentence; may be empty
	Span        string // the times of the first and the last request
	Requests    int
	Keys        int
	ExactDenied int

	Plan   plan.Plan
	Chosen study.Point
	Points []study.Point

	Frontier, OverTime Picture
	Windows            []WindowPicture
	Tiers              *Tiers // nil: not replayed
	Checked            int    // requests that the real script decided, too
	FindPart           float64
	Proposals          []study.Proposal
	Picks              []Pick
}

// WindowPicture is a worst window and its picture.
type WindowPicture struct {
	Window  study.Window
	Picture Picture
}

// Tiers is who decided when requests went through a limiter.
type Tiers struct {
	Requests, Local int
	Redis           string // which one
}

// Remote is how many went to Redis.
func (t Tiers) Remote() int { return t.Requests - t.Local }

// LocalPart is the part that was decided in process.
func (t Tiers) LocalPart() float64 { return float64(t.Local) / float64(max(1, t.Requests)) }

// LocalWidth is LocalPart in percent.
func (t Tiers) LocalWidth() float64 { return 100 * t.LocalPart() }

// Pick is what is chosen for a need.
type Pick struct {
	Need, Configuration  string
	BytesFull, WorstCase int64
}

//go:embed page.html
var source string

var page = template.Must(template.New("page").Funcs(template.FuncMap{"percent": percent, "key": shownKey, "count": Count}).Parse(source))

// shownKey is a key as people can read it: anyone may choose keys, also such as turn the direction
// of what stands behind them, and of long ones a trace has a hash only.
func shownKey(key string) string {
	if said, whole := remote.UserKey(key).Said(); !whole {
		return "a long key, of hash " + said
	}
	if quoted := strconv.Quote(key); !utf8.ValidString(key) || strings.ContainsFunc(key, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return quoted
	}
	return key
}

// Count is a number of things in words, like "1 key" or "2 keys".
func Count(n any, thing string) string {
	if number := fmt.Sprint(n); number != "1" {
		return number + " " + thing + "s"
	}
	return "1 " + thing
}

// Write writes the page.
func Write(w io.Writer, p Page) error { return page.Execute(w, p) }
