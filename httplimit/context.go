package httplimit

import (
	"context"
	"slices"
	"sync/atomic"
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
func SetCost(ctx context.Context, units int64) bool {
	found := false
	for {
		h, ok := ctx.Value(handedKey{}).(*handed)
		if !ok {
			return found
		}
		if h.wantsCost {
			h.cost.Store(max(0, units)) // others than -1
			found = true
		}
		ctx = h.outer
	}
}

type handedKey struct{}

// handed is what a handler can ask for, and say.
type handed struct {
	outer     context.Context // of the request before
	decided   []Decided
	wantsCost bool
	cost      atomic.Int64 // -1: the handler has not said
}

// hand makes what a handler is told of its request.
func hand(ctx context.Context, charges []charge, decided []Decided) *handed {
	h := &handed{outer: ctx, decided: slices.Clone(decided)}
	h.cost.Store(-1)
	for _, c := range charges {
		h.wantsCost = h.wantsCost || c.limit.byHandler
	}
	return h
}

// actual is what a request took of a limit, and whether that is known.
func (l *rateLimit) actual(handed *handed, settled func() int64) (units int64, known bool) {
	switch {
	case l.settle != nil:
		return settled(), true
	case l.byHandler:
		units = handed.cost.Load()
		return units, units >= 0
	}
	return 0, false
}
