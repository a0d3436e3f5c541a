package rulesfile

import (
	"log/slog"
	"time"

	"github.com/tierlimit/tierlimit/internal/option"
)

// Option configures the rules of a file. [Load] checks the option's arguments, and returns an
// error that wraps [limit.ErrInvalidOption].
type Option func(*Rules) error

// Logger sets the logger for loads of the file and their errors; the default is slog.Default().
func Logger(logger *slog.Logger) Option {
	return option.Set(func(r *Rules) { r.logger = logger }, logger != nil, "the Logger is nil")
}

// OnLoad sets a function that is called after each load except the first. Its argument is nil if the
// file was put in force, and otherwise the error. Calls do not overlap, and are made by the goroutine
// that loads the file. The function must not call [Rules.Reload].
func OnLoad(f func(error)) Option {
	return option.Set(func(r *Rules) { r.onLoad = f }, f != nil, "the OnLoad function is nil")
}

// Every sets how often [Rules.Watch] checks the file, 10 ms to 1 hour; the default is a second.
func Every(d time.Duration) Option {
	return option.Set(func(r *Rules) { r.every = d },
		d >= 10*time.Millisecond && d <= time.Hour, "Every of %v, must be between 10ms and 1h", d)
}
