package limit

import (
	"fmt"
	"strconv"
	"strings"
)

// Algorithm says how units are counted. The zero Algorithm is automatic: the
// rule chooses by the size of its limit. Algorithms are comparable with ==.
//
// Each algorithm guarantees the following bound in any window of length W on Redis's clock, for a limit
// of N units (see [Algorithm.WorstCase]):
//
//	sliding log                N, exactly what a list of all requests would grant
//	sliding counter, strict    N, but capacity returns up to W/k late
//	sliding counter, estimate  2N-1 (never above N in any window of W(1-1/k))
//	GCRA                       N+burst-1 (2N-1 unless a burst is set)
//	fixed window               2N (3N for windows of the calendar, which differ in length)
type Algorithm struct {
	buckets  int
	kind     kind
	rounding Rounding
	zset     bool
}

type kind uint8

const (
	kindAuto kind = iota
	kindSlidingLog
	kindSlidingCounter
	kindGCRA
	kindFixedWindow
	kindConcurrency
)

var kindNames = [...]string{
	kindAuto: "auto", kindSlidingLog: "sliding-log", kindSlidingCounter: "sliding-counter", kindGCRA: "gcra",
	kindFixedWindow: "fixed-window", kindConcurrency: "concurrency",
}

// Rounding says how a sliding counter counts its oldest sub-window, which
// only partly overlaps the window.
type Rounding uint8

const (
	// Estimate weighs the oldest sub-window by the part of it that still overlaps.
	Estimate Rounding = iota
	// Strict counts the oldest sub-window whole for as long as any of it overlaps.
	Strict
)

var roundingNames = [...]string{Estimate: "estimate", Strict: "strict"}

// MaxBuckets is the largest number of sub-windows of a sliding counter. With
// it, positions inside the longest window stay exact integers (law 10).
const MaxBuckets = 256

// DefaultBuckets is the number of sub-windows of a sliding counter if none is given. On the day of real
// traffic that "tierlimit replay" has built in, a strict counter with 16 sub-windows decides 0.30 % of
// the requests differently from the exact log (an estimate 0.20 %). With 60 sub-windows it is 0.11 %, but
// at a limit of 10,000 a key takes 1.5 times the bytes, and a denial takes 1.5 times as much of Redis's
// time. See docs/algorithms.md.
const DefaultBuckets = 16

// Automatic lets the rule choose by the size of its limit.
func Automatic() Algorithm { return Algorithm{} }

// SlidingLog remembers the time of every unit. It is exact and takes about 5 bytes per unit.
func SlidingLog() Algorithm { return Algorithm{kind: kindSlidingLog} }

// SlidingLogZSet is [SlidingLog] kept as a Redis sorted set, the usual form of a sliding log. It
// makes the same decisions, takes about 19 times the memory (at 1,000 units), and can be inspected
// with ZRANGE. The Redis user must also have the rights to ZRANGE, ZCOUNT, ZREVRANGEBYSCORE and
// ZREMRANGEBYRANK.
func SlidingLogZSet() Algorithm { return Algorithm{kind: kindSlidingLog, zset: true} }

// SlidingCounter counts units in k sub-windows of the window. k is between 1 and [MaxBuckets]. k = 1 with
// [Estimate] is the well-known two-counter approximation.
func SlidingCounter(k int, rounding Rounding) Algorithm {
	return Algorithm{kind: kindSlidingCounter, buckets: k, rounding: rounding}
}

// GCRA is the generic cell rate algorithm (ITU-T I.371), a token bucket. It stores one time stamp per
// key. Units return at an even rate, and up to the limit's burst is granted at once. The burst is the
// whole quota unless [Limit.WithBurst] sets another.
func GCRA() Algorithm { return Algorithm{kind: kindGCRA} }

// FixedWindow counts units in windows aligned to the Unix epoch. It lets up to 2N through around a
// boundary.
func FixedWindow() Algorithm { return Algorithm{kind: kindFixedWindow} }

// Algorithms returns every algorithm that counts units in windows, each with its default parameters, from
// the most to the least exact.
func Algorithms() []Algorithm {
	return []Algorithm{SlidingLog(), SlidingCounter(DefaultBuckets, Strict), GCRA(), FixedWindow()}
}

// Name returns the algorithm's name without its parameters: "auto", "sliding-log",
// "sliding-counter", "gcra", "fixed-window" or "concurrency".
func (a Algorithm) Name() string { return nameOf(kindNames[:], int(a.kind)) }

// nameOf returns the name of a value, or "unknown" if it has none.
func nameOf(names []string, value int) string {
	if value >= len(names) {
		return "unknown"
	}
	return names[value]
}

// String returns the form that [ParseAlgorithm] reads, parameters included:
// "sliding-counter:k=16,strict".
func (a Algorithm) String() string {
	switch {
	case a.zset:
		return a.Name() + ":zset"
	case a.kind != kindSlidingCounter:
		return a.Name()
	}
	return fmt.Sprintf("%s:k=%d,%s", a.Name(), a.buckets, a.rounding)
}

// String returns "estimate" or "strict".
func (r Rounding) String() string { return nameOf(roundingNames[:], int(r)) }

// Buckets returns the number of sub-windows of a sliding counter, and 0 for other algorithms.
func (a Algorithm) Buckets() int { return a.buckets }

// Rounding returns how a sliding counter treats its oldest sub-window.
func (a Algorithm) Rounding() Rounding { return a.rounding }

// IsAutomatic reports whether the rule chooses the algorithm.
func (a Algorithm) IsAutomatic() bool { return a.kind == kindAuto }

// Same reports whether two algorithms have the same name, whatever their parameters.
func (a Algorithm) Same(b Algorithm) bool { return a.kind == b.kind }

// Validate returns nil, or an error that wraps [ErrInvalidAlgorithm].
func (a Algorithm) Validate() error {
	if a.kind == kindSlidingCounter {
		if a.buckets < 1 || a.buckets > MaxBuckets {
			return fmt.Errorf("%w: k is %d, a sliding counter has between 1 and %d sub-windows", ErrInvalidAlgorithm, a.buckets, MaxBuckets)
		}
		if a.rounding > Strict {
			return fmt.Errorf("%w: rounding is %d, must be Estimate or Strict", ErrInvalidAlgorithm, a.rounding)
		}
	}
	return nil
}

// Capacity returns the largest cost that l can ever grant at once under a: the
// quota, or for GCRA the burst. A larger cost is an error, not a denial.
func (a Algorithm) Capacity(l Limit) int64 {
	if a.kind == kindGCRA {
		return l.Burst()
	}
	return l.Quota()
}

// WorstCase returns the most units that a can let through in any half-open window of the limit's length,
// on Redis's clock (law 1). For a limit of [Concurrent] it returns the most units that can be held at any
// instant.
func (a Algorithm) WorstCase(l Limit) int64 {
	n := l.Quota()
	switch {
	case a.kind == kindGCRA:
		return n + l.Burst() - 1
	case l.IsCalendar():
		return 3 * n // a long calendar window can contain a short one and parts of two others
	case a.kind == kindFixedWindow:
		return 2 * n
	case a.kind == kindSlidingCounter && a.rounding == Estimate:
		return 2*n - 1
	}
	return n
}

// ParseAlgorithm parses the form that [Algorithm.String] returns: a name, which may be followed by ":" and
// parameters, each at most once, as in "sliding-counter:k=60,estimate" and "sliding-log:zset". "auto" and ""
// are [Automatic]. The error wraps [ErrInvalidAlgorithm] and says what is valid.
func ParseAlgorithm(s string) (Algorithm, error) {
	name, parameters, _ := strings.Cut(s, ":")
	if name == "" || name == "auto" {
		if parameters != "" {
			return Algorithm{}, fmt.Errorf("%w: %q: auto has no parameters", ErrInvalidAlgorithm, s)
		}
		return Automatic(), nil
	}
	for _, a := range append(Algorithms(), Concurrency()) {
		if a.Name() == name {
			return a.withParameters(s, parameters)
		}
	}
	return Algorithm{}, fmt.Errorf("%w: %q, must be one of auto, sliding-log, sliding-counter, gcra, fixed-window", ErrInvalidAlgorithm, s)
}

func (a Algorithm) withParameters(whole, parameters string) (Algorithm, error) {
	given := make(map[string]bool)
	for parameter := range strings.SplitSeq(parameters, ",") {
		name, value, _ := strings.Cut(parameter, "=")
		setting := name
		if parameter == Strict.String() || parameter == Estimate.String() {
			setting = "the rounding (strict or estimate)"
		}
		switch {
		case parameter == "":
		case given[setting]:
			return Algorithm{}, fmt.Errorf("%w: %q: %s is given twice", ErrInvalidAlgorithm, whole, setting)
		case a.kind == kindSlidingLog && parameter == "zset":
			a.zset = true
		case a.kind == kindGCRA && name == "burst":
			return Algorithm{}, fmt.Errorf("%w: %q: the burst is part of the limit: write it there, like 60/1m,burst=10", ErrInvalidAlgorithm, whole)
		case a.kind != kindSlidingCounter:
			return Algorithm{}, fmt.Errorf("%w: %q: %s has no parameter %q", ErrInvalidAlgorithm, whole, a.Name(), parameter)
		case name == "k":
			k, err := strconv.Atoi(value)
			if err != nil {
				return Algorithm{}, fmt.Errorf("%w: %q: k=%q is not a whole number between 1 and %d", ErrInvalidAlgorithm, whole, value, MaxBuckets)
			}
			a = SlidingCounter(k, a.rounding)
		case parameter == "strict":
			a.rounding = Strict
		case parameter == "estimate":
			a.rounding = Estimate
		default:
			return Algorithm{}, fmt.Errorf("%w: %q: unknown parameter %q, a sliding counter has k=NUMBER, strict and estimate", ErrInvalidAlgorithm, whole, parameter)
		}
		given[setting] = true
	}
	return a, a.Validate()
}

// MarshalText writes [Algorithm.String].
func (a Algorithm) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText reads what [ParseAlgorithm] reads.
func (a *Algorithm) UnmarshalText(text []byte) error { return unmarshal(a, text, ParseAlgorithm) }

// unmarshal sets a value to what parse reads. After an error the value is unchanged.
func unmarshal[T any](to *T, text []byte, parse func(string) (T, error)) error {
	parsed, err := parse(string(text))
	if err == nil {
		*to = parsed
	}
	return err
}
