package main

import (
	"fmt"
	"io"
	"time"
)

// progress reports the current work and the remaining time.
type progress struct {
	w       io.Writer
	started time.Time
	planned time.Duration
	covered time.Duration // the part of planned that is done
}

func newProgress(w io.Writer, planned time.Duration) *progress {
	fmt.Fprintf(w, "about %v in all\n", planned.Round(time.Second))
	return &progress{w: w, started: time.Now(), planned: planned}
}

func (p *progress) say(format string, args ...any) {
	// The remaining work is assumed to be as slow relative to the plan as the work so far, once there is enough of
	// that to tell.
	slower := 1.0
	if p.covered > 10*time.Second {
		slower = float64(time.Since(p.started)) / float64(p.covered)
	}
	left := time.Duration(float64(p.planned-p.covered) * slower)
	fmt.Fprintf(p.w, "%5v, %5v left: %s\n", time.Since(p.started).Round(time.Second), left.Round(time.Second), fmt.Sprintf(format, args...))
}

// add records that work is done which was planned to take the given time.
func (p *progress) add(planned time.Duration) { p.covered += planned }

func (p *progress) done() {
	fmt.Fprintf(p.w, "done in %v\n", time.Since(p.started).Round(time.Second))
}
