package remote

import (
	"context"
	"fmt"
	"time"
)

// ErrDecideBy: the time that the program gave the call, see [DecideBy], was over before Redis
// answered, and before the limiter's deadline. That says nothing of Redis (law 11). If the entry was
// sent it may have been charged.
var ErrDecideBy = fmt.Errorf("%w of this call, which is before the limiter's", ErrNoAnswer)

var errDecideByNotSent = fmt.Errorf("%w: %w", ErrDecideBy, errNotRun)

const (
	// leastTime is with how much less time Redis is not asked any more: the answer would hardly come
	// in time. Of a short deadline it is a part.
	leastTime     = 2 * time.Millisecond
	leastTimePart = 8
	// wholePart is the part of the deadline that counts as all of it. A time that begins when
	// the program accepts a request is a little shorter by the time of its first call.
	wholePart = 15.0 / 16
)

// DecideBy is a context with which entries are decided by t at the latest, or end with
// [ErrDecideBy]. It is not the context's deadline: that is the caller's, and ends with the
// caller's error. Of several times the earliest counts.
func DecideBy(ctx context.Context, t time.Time) context.Context {
	if d := decideByOf(ctx); d != nil && !t.Before(d.by) {
		return ctx
	}
	return &decideBy{Context: ctx, by: t}
}

// WithoutDecideBy is a context in which no such time counts.
func WithoutDecideBy(ctx context.Context) context.Context {
	if decideByOf(ctx) == nil {
		return ctx
	}
	return &decideBy{Context: ctx, none: true}
}

// TimeLeft is how much time entries with this context have, which is within at most. It may be
// negative.
func TimeLeft(ctx context.Context, within time.Duration) time.Duration {
	if d := decideByOf(ctx); d != nil {
		return min(within, time.Until(d.by))
	}
	return within
}

// LateBy is err, with which something ended that came before the entry was sent: or [ErrDecideBy], if
// the time of this context is over.
func LateBy(ctx context.Context, err error) error {
	if d := decideByOf(ctx); d != nil && time.Until(d.by) <= 0 {
		return errDecideByNotSent
	}
	return err
}

type decideBy struct {
	context.Context
	by   time.Time
	none bool // any time is in time
}

type decideByKey struct{}

// Value is of context.Context.
func (d *decideBy) Value(key any) any {
	if key == (decideByKey{}) {
		return d
	}
	return d.Context.Value(key)
}

// decideByOf is nil if there is no such time.
func decideByOf(ctx context.Context) *decideBy {
	if d, ok := ctx.Value(decideByKey{}).(*decideBy); ok && !d.none {
		return d
	}
	return nil
}
