package remote

import (
	"context"
	"fmt"
	"time"
)

// ErrDecideBy means that the time that the program gave the call (see [DecideBy]) was over before
// Redis answered, and before the limiter's deadline. It is no sign of an outage (law 11). If the
// entry was sent, it may have been charged.
var ErrDecideBy = fmt.Errorf("%w of this call, which is before the limiter's", ErrNoAnswer)

var errDecideByNotSent = fmt.Errorf("%w: %w", ErrDecideBy, errNotRun)

const (
	// leastTime is the least time with which Redis is asked at all, since an answer would hardly arrive
	// sooner. For a short deadline it is 1/leastTimePart of it.
	leastTime     = 2 * time.Millisecond
	leastTimePart = 8
	// wholePart is the part of the deadline that counts as all of it, because a time that begins when
	// the program accepts a request is already a little shorter at its first call.
	wholePart = 15.0 / 16
)

// DecideBy returns a context with which entries are decided by t at the latest, or end with
// [ErrDecideBy]. This is separate from the context's deadline, which is the caller's and ends calls
// with the caller's error. If it is applied several times, the earliest time counts.
func DecideBy(ctx context.Context, t time.Time) context.Context {
	if d := decideByOf(ctx); d != nil && !t.Before(d.by) {
		return ctx
	}
	return &decideBy{Context: ctx, by: t}
}

// WithoutDecideBy returns a context without the time that [DecideBy] has set.
func WithoutDecideBy(ctx context.Context) context.Context {
	if decideByOf(ctx) == nil {
		return ctx
	}
	return &decideBy{Context: ctx, none: true}
}

// TimeLeft returns how much time entries with this context have, at most within. It may be negative.
func TimeLeft(ctx context.Context, within time.Duration) time.Duration {
	if d := decideByOf(ctx); d != nil {
		return min(within, time.Until(d.by))
	}
	return within
}

// LateBy returns [ErrDecideBy] if the time that [DecideBy] has set for this context is over, and
// otherwise err, the error of a step before the entry is sent.
func LateBy(ctx context.Context, err error) error {
	if d := decideByOf(ctx); d != nil && time.Until(d.by) <= 0 {
		return errDecideByNotSent
	}
	return err
}

type decideBy struct {
	context.Context
	by   time.Time
	none bool // no such time counts
}

type decideByKey struct{}

// Value implements context.Context.
func (d *decideBy) Value(key any) any {
	if key == (decideByKey{}) {
		return d
	}
	return d.Context.Value(key)
}

// decideByOf returns nil if no such time counts.
func decideByOf(ctx context.Context) *decideBy {
	if d, ok := ctx.Value(decideByKey{}).(*decideBy); ok && !d.none {
		return d
	}
	return nil
}
