// Package nasa contains a log of one day of real traffic, so that the command has something to replay
// if no log is at hand. The README next to it says where the log comes from.
package nasa

import (
	"bytes"
	_ "embed" // for the log
	"io"
)

//go:embed nasa-1995-08-01.log.gz
var log []byte

// Open returns the log from its beginning: Common Log Format, gzipped.
func Open() io.Reader { return bytes.NewReader(log) }
