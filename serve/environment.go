package serve

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// environment reads variables. An empty variable counts as not set, except for hosts.
//
// A value with which envoyproxy/ratelimit starts must not keep this service from starting, because users change only the
// image. If the value means nothing here, the next best is used, with a warning.
type environment struct {
	values   map[string]string
	errs     []error
	warnings []string // of values that are not used as they are
}

func newEnvironment(environ []string) *environment {
	e := &environment{values: make(map[string]string)}
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		e.values[name] = value
	}
	return e
}

// fail records a mistake. The same mistake is recorded only once, even if its variable is read several times.
func (e *environment) fail(format string, args ...any) {
	err := fmt.Errorf("%w: "+format, append([]any{ErrInvalidSetting}, args...)...)
	if !slices.ContainsFunc(e.errs, func(known error) bool { return known.Error() == err.Error() }) {
		e.errs = append(e.errs, err)
	}
}

func (e *environment) warn(format string, args ...any) {
	e.warnings = append(e.warnings, fmt.Sprintf(format, args...))
}

func (e *environment) text(name, otherwise string) string {
	if value := e.values[name]; value != "" {
		return value
	}
	return otherwise
}

func (e *environment) truth(name string, otherwise bool) bool {
	text := e.values[name]
	if text == "" {
		return otherwise
	}
	value, err := strconv.ParseBool(text)
	if err != nil {
		e.fail("%s is %q, must be true or false", name, text)
	}
	return value
}

// number reads a whole number in any of Go's forms, such as 0x100000 and 1_000_000, because envoyproxy/ratelimit does.
func (e *environment) number(name string, otherwise, least, most int) int {
	text := e.values[name]
	if text == "" {
		return otherwise
	}
	value, err := strconv.ParseInt(text, 0, strconv.IntSize)
	if err != nil || int(value) < least || int(value) > most {
		e.fail("%s is %q, must be a whole number between %d and %d", name, text, least, most)
	}
	return int(value)
}

func (e *environment) duration(name string, otherwise time.Duration) time.Duration {
	value := e.signedDuration(name, otherwise)
	if value < 0 {
		e.fail(notDuration, name, e.values[name])
		return otherwise
	}
	return value
}

const notDuration = "%s is %q, must be a duration like 10s or 1h"

// signedDuration reads a duration that may be negative, for variables of which envoyproxy/ratelimit accepts that.
func (e *environment) signedDuration(name string, otherwise time.Duration) time.Duration {
	text := e.values[name]
	if text == "" {
		return otherwise
	}
	value, err := time.ParseDuration(text)
	if err != nil {
		e.fail(notDuration, name, text)
		return otherwise
	}
	return value
}

// atLeast returns the given value of a variable, or least if it is shorter.
func (e *environment) atLeast(name string, value, least time.Duration) time.Duration {
	if value < least {
		e.warn("%s is %v: %v is used, the shortest there is", name, value, least)
	}
	return max(value, least)
}

func (e *environment) address(host, port string, otherwise int) string {
	return e.hostPort(host, e.number(port, otherwise, 0, 65535))
}

// hostPort returns an address. As in envoyproxy/ratelimit, an empty host is all addresses of the machine, those of IPv6
// included.
func (e *environment) hostPort(host string, port int) string {
	name, set := e.values[host]
	if !set {
		name = "0.0.0.0"
	}
	return net.JoinHostPort(name, strconv.Itoa(port))
}

func (e *environment) oneOf(name string, values ...string) {
	if text := e.values[name]; text != "" && !slices.Contains(values, text) {
		e.fail("%s is %q, must be %s: no other value is supported", name, text, strings.Join(values, " or "))
	}
}
