package httplimit

import (
	"context"
	"slices"

	"github.com/tierlimit/tierlimit/internal/admission"
)

// ForHandlers lets the handler see what was decided about its request, by [Decisions]. It
// costs the request a context of its own.
func ForHandlers() Option {
	return func(m *middleware) error {
		m.inContext = true
		return nil
	}
}

// HandlerCost has the handler say what the request took, by [SetCost]: the request's [Cost] is
// reserved before, and corrected when the handler has returned, as by [Settle]. If the handler
// says nothing the reservation stands. A limit has either this or Settle.
func HandlerCost() LimitOption {
	return func(l *rateLimit) error {
		l.byHandler = true
		return nil
	}
}

// Decisions returns what the limits of middlewares with [ForHandlers] or [HandlerCost] said of the
// request whose context it is, the outermost first; nothing if there are none. All of them
// allowed it, or it would not have come so far.
func Decisions(ctx context.Context) []Decided {
	h, ok := ctx.Value(handedKey{}).(*handed)
	if !ok {
		return nil
	}
	return append(Decisions(h.outer), h.decided...)
}

// SetCost says what the request whose context it is took, for its limits with [HandlerCost]; the
// last call counts, and less than 0 counts as 0. It does nothing, and returns false, if there are
// none. It is safe for concurrent use, until the handler has returned.
func SetCost(ctx context.Context, units int64) bool { return admission.SetCost(ctx, units) }

type handedKey struct{}

// handed is what a handler can ask for.
type handed struct {
	outer   context.Context // of the request before
	decided []Decided
}

// hand returns a context in which a handler can ask what was decided.
func hand(ctx context.Context, decided []Decided) context.Context {
	return context.WithValue(ctx, handedKey{}, &handed{outer: ctx, decided: slices.Clone(decided)})
}

// actual is what a request took of a limit, and whether that is known.
func (l *rateLimit) actual(said *admission.SaidCost, settled func() int64) (units int64, known bool) {
	switch {
	case l.settle != nil:
		return settled(), true
	case l.byHandler:
		return said.Units()
	}
	return 0, false
}
