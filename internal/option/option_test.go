package option

import (
	"errors"
	"io"
	"testing"

	"github.com/tierlimit/tierlimit/limit"
)

// What is wrong has the same form for all options, and keeps what it was made of.
func TestInvalid(t *testing.T) {
	err := Invalid("size %d: %w", 3, io.EOF)
	if !errors.Is(err, limit.ErrInvalidOption) || !errors.Is(err, io.EOF) || err.Error() != limit.ErrInvalidOption.Error()+": size 3: EOF" {
		t.Error(err)
	}
	if err := NotNil(false, "Logger"); !errors.Is(err, limit.ErrInvalidOption) || NotNil(true, "Logger") != nil {
		t.Error(err)
	}
}
