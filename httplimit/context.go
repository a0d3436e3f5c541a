package httplimit

import (
	"context"
	"slices"

	"github.com/tierlimit/tierlimit/internal/admission"
	"github.com/tierlimit/tierlimit/internal/option"
)

// ForHandlers lets the handler read the decisions about its request with [Decisions]. It adds a
// context to each request.
func ForHandlers() Option {
	return option.Always(func(m *middleware) { m.inContext = true })
}

// HandlerCost lets the handler set what the request used, with [SetCost]. The request's [Cost] is
// reserved before the handler runs, and corrected when the handler has returned, as with [Settle]. If
// the handler does not call SetCost, the reservation stays charged. A limit can have either HandlerCost
// or Settle.
func HandlerCost() LimitOption {
	return option.Always(func(l *rateLimit) { l.ByHandler = true })
}

// Decisions returns the decisions about the request of this context, made by the limits of middlewares
// with [ForHandlers] or [HandlerCost], the outermost middleware first. It returns nil if there are
// none. All decisions allowed the request; otherwise the handler would not run.
func Decisions(ctx context.Context) []Decided {
	h, ok := ctx.Value(handedKey{}).(*handed)
	if !ok {
		return nil
	}
	return append(Decisions(h.outer), h.decided...)
}

// SetCost sets the units that the request of this context used, for its limits with [HandlerCost]. The
// last call counts, and units below 0 count as 0. If the request has no such limits, SetCost does
// nothing and returns false. It is safe for concurrent use until the handler has returned.
func SetCost(ctx context.Context, units int64) bool { return admission.SetCost(ctx, units) }

type handedKey struct{}

// handed has the decisions that a handler can ask for.
type handed struct {
	outer   context.Context // the request's context before the decisions were added
	decided []Decided
}

// hand returns a context with the decisions for a handler.
func hand(ctx context.Context, decided []Decided) context.Context {
	return context.WithValue(ctx, handedKey{}, &handed{outer: ctx, decided: slices.Clone(decided)})
}
