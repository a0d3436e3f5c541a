// Package option reports invalid options, in the same words everywhere.
package option

import (
	"fmt"

	"github.com/tierlimit/tierlimit/limit"
)

// Invalid returns an error that wraps [limit.ErrInvalidOption], with a text that is formatted as by
// [fmt.Errorf]. The text names the option, its value, and the valid values.
func Invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %w", limit.ErrInvalidOption, fmt.Errorf(format, args...))
}

// Check returns nil if the value of an option is right, and otherwise the error of [Invalid].
func Check(right bool, format string, args ...any) error {
	if right {
		return nil
	}
	return Invalid(format, args...)
}

// Set returns an option that calls set, and then returns what [Check] returns for the other arguments.
func Set[T any](set func(T), right bool, format string, args ...any) func(T) error {
	return func(to T) error {
		set(to)
		return Check(right, format, args...)
	}
}

// Always returns an option that calls set, and is always valid.
func Always[T any](set func(T)) func(T) error { return Set(set, true, "") }

// Apply applies options in their order, up to the first that returns an error. A nil option is an error,
// too.
func Apply[T any, F ~func(T) error](to T, options []F) error {
	for i, option := range options {
		if option == nil {
			return isNil(i, len(options))
		}
		if err := option(to); err != nil {
			return err
		}
	}
	return nil
}

// NotNil returns the error of [Apply] if one of the options is nil. It is for functions that pass options on together
// with others of their own, which would otherwise be counted in the error's text.
func NotNil[T any, F ~func(T) error](options []F) error {
	for i, option := range options {
		if option == nil {
			return isNil(i, len(options))
		}
	}
	return nil
}

func isNil(i, of int) error { return Invalid("option %d of %d is nil", i+1, of) }
