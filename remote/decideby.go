package remote

import (
	"context"
	"fmt"
	"time"
)

// ErrDecideBy means that the time that the program gave the call (see [DecideBy]) ended before Redis answered,
// and before the limiter's deadline. It is no sign of an outage (law 11). If the entry was sent, it may have
// been charged.
var ErrDecideBy = fmt.Errorf("%w of this call, which is earlier than the limiter's", ErrNoAnswer)

var errDecideByNotSent = fmt.Errorf("%w: %w", ErrDecideBy, errNotRun)

const (
	// leastTime is the least time with which Redis is asked at all; an answer would hardly arrive sooner. For a
	// short deadline it is 1/leastTimePart of the deadline.
	leastTime     = 2 * time.Millisecond
	leastTimePart = 8
	// wholePart is the part of the deadline that counts as all of it. A time that begins when the program
	// accepts a request is already a little shorter at the request's first call.
	wholePart = 15.0 / 16
)

// DecideBy returns a context with which entries are decided by t at the latest, or end with
// [ErrDecideBy]. This is separate from the context's deadline, which is the caller's and ends calls
// with the caller's error. If it is applied several times, the earliest time counts.
func DecideBy(ctx context.Context, t time.Time) context.Context {
	if by, ok := decideByOf(ctx); ok && !t.Before(by.Time) {
		return ctx
	}
	return context.WithValue(ctx, decideByKey{}, decideBy{Time: t})
}

// Rest returns a context like that of [DecideBy] for a call whose earlier steps have used a part of the
// limiter's own deadline. t is the end of that deadline, not a time that the program gave the call. Entries
// that are not decided by then have missed the deadline, and do not end with ErrDecideBy.
func Rest(ctx context.Context, t time.Time) context.Context {
	if by, ok := decideByOf(ctx); ok && by.Sub(t) < time.Millisecond {
		return ctx // the program's time ends no later
	}
	return context.WithValue(ctx, decideByKey{}, decideBy{Time: t, rest: true})
}

// WithoutDecideBy returns a context without the time that [DecideBy] set.
func WithoutDecideBy(ctx context.Context) context.Context {
	if _, ok := decideByOf(ctx); !ok {
		return ctx
	}
	return context.WithValue(ctx, decideByKey{}, nil)
}

// TimeLeft returns how much time entries with this context have, at most within. It may be negative.
func TimeLeft(ctx context.Context, within time.Duration) time.Duration {
	if by, ok := decideByOf(ctx); ok {
		return min(within, time.Until(by.Time))
	}
	return within
}

// LateBy returns [ErrDecideBy] if the time that [DecideBy] set for this context is over. Otherwise it returns
// err, the error of a step before the entry is sent.
func LateBy(ctx context.Context, err error) error {
	if by, ok := decideByOf(ctx); ok && !by.rest && time.Until(by.Time) <= 0 {
		return errDecideByNotSent
	}
	return err
}

// decideByKey is the key of the time in contexts. The value is a decideBy; nil means that no time counts.
type decideByKey struct{}

type decideBy struct {
	time.Time
	rest bool // set by Rest
}

func decideByOf(ctx context.Context) (by decideBy, ok bool) {
	by, ok = ctx.Value(decideByKey{}).(decideBy)
	return by, ok
}
