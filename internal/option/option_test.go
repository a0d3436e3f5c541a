package option

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/tierlimit/tierlimit/limit"
)

// Errors of options have the same form for all options, and wrap their causes.
func TestInvalid(t *testing.T) {
	err := Invalid("size %d: %w", 3, io.EOF)
	if !errors.Is(err, limit.ErrInvalidOption) || !errors.Is(err, io.EOF) || err.Error() != limit.ErrInvalidOption.Error()+": size 3: EOF" {
		t.Error(err)
	}
	if err := Check(false, "size %d", 3); !errors.Is(err, limit.ErrInvalidOption) || Check(true, "size %d", 3) != nil {
		t.Error(err)
	}
}

// Options are applied in order, up to the first mistake. A nil option is a mistake, too.
func TestApply(t *testing.T) {
	type part func(*[]int) error
	add := func(n int) part { return func(all *[]int) error { *all = append(*all, n); return nil } }
	var all []int
	if err := Apply(&all, []part{add(1), add(2)}); err != nil || len(all) != 2 || all[0] != 1 {
		t.Error(all, err)
	}
	err := Apply(&all, []part{add(3), nil, add(4)})
	if !errors.Is(err, limit.ErrInvalidOption) || !strings.HasSuffix(err.Error(), "option 2 of 3 is nil") || len(all) != 3 {
		t.Error(all, err)
	}
	if err := Apply(&all, []part{func(*[]int) error { return io.EOF }, add(5)}); err != io.EOF || len(all) != 3 {
		t.Error(all, err)
	}
}
