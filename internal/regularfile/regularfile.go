// Package regularfile reads files that other programs or people provide.
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
	// ErrNotRegular says that the path leads to something other than a regular file, such as a directory,
	// a pipe or a device.
	ErrNotRegular = errors.New("not a regular file")
	// ErrTooLarge says that the file has more bytes than may be read.
	ErrTooLarge = errors.New("the file is too large")
)

// Read reads a regular file of at most most bytes. It follows links. Opening and reading anything else,
// such as a named pipe, may block forever; O_NONBLOCK and a check of the opened file prevent that. Errors
// wrap [ErrNotRegular] or [ErrTooLarge], or are those of the system.
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
		return nil, fmt.Errorf("%s is %w (its type is %v)", path, ErrNotRegular, is.Mode().Type())
	}
	// Some files are read again and again. With space for the whole file from the start, a large file is
	// not copied while the buffer grows, which takes five times its size.
	var text bytes.Buffer
	text.Grow(int(min(is.Size(), most)) + bytes.MinRead)
	_, err = text.ReadFrom(io.LimitReader(file, most+1))
	if err == nil && int64(text.Len()) > most {
		err = fmt.Errorf("%w: %s has more than %d bytes", ErrTooLarge, path, most)
	}
	return text.Bytes(), err
}
