// Package option says what is wrong with an option, in the same words everywhere.
package option

import (
	"fmt"

	"github.com/tierlimit/tierlimit/limit"
)

// Invalid returns an error of that text, made as by [fmt.Errorf], that wraps
// [limit.ErrInvalidOption]. The text names the option, its value, and what it must be.
func Invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %w", limit.ErrInvalidOption, fmt.Errorf(format, args...))
}

// Check returns nil if the value of an option is right, or else the error of [Invalid].
func Check(right bool, format string, args ...any) error {
	if right {
		return nil
	}
	return Invalid(format, args...)
}

// NotNil returns nil if an option was given what it needs, or else the error that it was given nil.
func NotNil(given bool, option string) error { return Check(given, "%s was given nil", option) }

// Apply applies options in their order, up to the first that returns an error. One that is nil is an
// error, too.
func Apply[T any, F ~func(T) error](to T, options []F) error {
	for i, option := range options {
		if option == nil {
			return Invalid("option %d of %d is nil", i+1, len(options))
		}
		if err := option(to); err != nil {
			return err
		}
	}
	return nil
}
