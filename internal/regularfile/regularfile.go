// Package regularfile reads files that somebody else puts there.
package regularfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

var (
	// ErrNotRegular says that what the path leads to is a directory, a pipe, a device.
	ErrNotRegular = errors.New("no regular file")
	// ErrTooLarge says that the file has more bytes than may be read.
	ErrTooLarge = errors.New("the file is too large")
)

// Read reads a regular file of at most so many bytes, whatever links lead to it. Opening and
// reading anything else, such as a named pipe, may wait for ever, which O_NONBLOCK and a look at
// what was opened prevent. Errors wrap [ErrNotRegular], [ErrTooLarge], or are those of the system.
func Read(path string, most int64) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	is, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !is.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is %w, but %v", path, ErrNotRegular, is.Mode().Type())
	}
	// Some files are read again and again: with space for all of it from the start, a large one is
	// not copied while the space grows, which takes five times its size.
	var text bytes.Buffer
	text.Grow(int(min(is.Size(), most)) + bytes.MinRead)
	_, err = text.ReadFrom(io.LimitReader(file, most+1))
	if err == nil && int64(text.Len()) > most {
		err = fmt.Errorf("%w: %s has more than %d bytes", ErrTooLarge, path, most)
	}
	return text.Bytes(), err
}
