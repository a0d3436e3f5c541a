package main

import (
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress is a progress bar on a terminal. Without a terminal it does nothing.
type progress struct{ bar *progressbar.ProgressBar }

func newProgress(stderr io.Writer, total int) progress {
	file, ok := stderr.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return progress{}
	}
	return progress{progressbar.NewOptions(total,
		progressbar.OptionSetWriter(stderr),
		progressbar.OptionSetWidth(30),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionShowCount(),
		progressbar.OptionSetPredictTime(true),
		progressbar.OptionClearOnFinish(),
	)}
}

func (p progress) add(n int) {
	if p.bar != nil {
		_ = p.bar.Add(n) // failing to draw a bar is no reason to stop
	}
}

func (p progress) describe(what string) {
	if p.bar != nil {
		p.bar.Describe(what)
	}
}

// clear removes the bar, so that a line can be printed. The bar continues below it.
func (p progress) clear() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}

func (p progress) finish() {
	if p.bar != nil {
		_ = p.bar.Finish()
	}
}
