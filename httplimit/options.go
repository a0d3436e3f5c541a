package httplimit

import (
	"fmt"
	"log/slog"
	"net/http"

	"github.com/tierlimit/tierlimit/internal/admission"
	"github.com/tierlimit/tierlimit/internal/option"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// Option sets something for a middleware. What it was given is checked by [New],
// which returns an error that wraps [limit.ErrInvalidOption].
type Option func(*middleware) error

// Limit adds a limit: a rule, and the key to charge for a request. At least one is
// needed. A middleware's limits are charged together, all or none, in one trip to
// Redis (see tiered.Limiter.AllowAll): a tenant's quota and an endpoint's limit, say.
// Each needs a rule of its own; its name is the policy's name that clients see.
func Limit(rule *tiered.Rule, key KeyFunc, options ...LimitOption) Option {
	return func(m *middleware) error {
		if err := m.names.Add(rule, key != nil); err != nil {
			return err
		}
		l := &rateLimit{Limit: admission.Limit[*http.Request]{Rule: rule, Key: key}}
		for _, option := range options {
			if err := option(l); err != nil {
				return fmt.Errorf("limit %q: %w", rule.Name(), err)
			}
		}
		if l.byHandler && l.settle != nil {
			return option.Invalid("limit %q has both Settle and HandlerCost, state one of them", rule.Name())
		}
		if rule.Limit().IsConcurrent() && (l.byHandler || l.settle != nil) {
			return option.Invalid("limit %q has Settle or HandlerCost, but its units are given back when the handler returns", rule.Name())
		}
		m.limits = append(m.limits, l)
		m.settles = m.settles || l.settle != nil || l.byHandler
		m.inContext = m.inContext || l.byHandler
		return nil
	}
}

// LimitOption sets something for one limit of a middleware.
type LimitOption func(*rateLimit) error

// rateLimit is one limit of a middleware.
type rateLimit struct {
	admission.Limit[*http.Request]
	settle    func(*http.Request, Response) int64
	byHandler bool // SetCost says what a request took
	unit      string
	partition KeyFunc // nil: not shown
}

// When says which requests the limit is for; the others pass it, uncharged. Without
// it the limit is for all.
func When(applies func(*http.Request) bool) LimitOption {
	return func(l *rateLimit) error {
		l.When = applies
		return option.NotNil(applies != nil, "When")
	}
}

// Cost says how many units a request takes, at least 1; without it, 1. What is less
// than 1, or more than the rule can ever grant, is an error (see [OnError]): bound
// what comes out of the request.
func Cost(of func(*http.Request) int64) LimitOption {
	return func(l *rateLimit) error {
		l.Cost = of
		return option.NotNil(of != nil, "Cost")
	}
}

// RuleFor chooses the rule for a request, such as that of its tenant's plan (see
// tiered.Rule.WithLimit), or the newest version of a rule that changes at run time.
// nil stands for the limit's own rule.
func RuleFor(choose func(*http.Request) *tiered.Rule) LimitOption {
	return func(l *rateLimit) error {
		if err := option.NotNil(choose != nil, "RuleFor"); err != nil {
			return err
		}
		return l.RuleFor("RuleFor", func(r *http.Request, _ string) *tiered.Rule { return choose(r) })
	}
}

// RuleForKey chooses the rule by the limit's own key, which is said once: with a rules file this is
// its rule's For (see rulesfile.Rule.For), with plans a look-up of the tenant. choose is called with
// what the limit's [KeyFunc] returned, "" for a request without a key, from many goroutines at a time.
// nil stands for the limit's own rule. A limit has either this or [RuleFor].
func RuleForKey(choose func(key string) *tiered.Rule) LimitOption {
	return func(l *rateLimit) error {
		if err := option.NotNil(choose != nil, "RuleForKey"); err != nil {
			return err
		}
		return l.RuleFor("RuleForKey", func(_ *http.Request, key string) *tiered.Rule { return choose(key) })
	}
}

// Settle corrects the charge when the response is done: the request's [Cost] is
// reserved before, and the function says what it took in the end. What was reserved
// too much is refunded, down to nothing at all. What was reserved too little is
// charged whether or not it fits: it is debt, for which the next requests wait (see
// [tiered.Rule.ChargeUsed]). Reserve the most that a request may take where the limit must
// hold for it, too.
//
// It costs a trip to Redis before the end of the response, if there is something to
// correct, and is not cut short by a client that goes away. If Redis cannot be
// reached what was reserved too much stays charged there, and what was reserved too little is
// charged later. The fields that the client sees were sent before
// and tell of the reservation.
func Settle(actual func(*http.Request, Response) int64) LimitOption {
	return func(l *rateLimit) error {
		l.settle = actual
		return option.NotNil(actual != nil, "Settle")
	}
}

// Unit tells clients what is counted, if not requests: "content-bytes" and
// "concurrent-requests" are the draft's other units (parameter qu). The latter is told by itself
// of rules with a limit of [limit.Concurrent].
func Unit(name string) LimitOption {
	return func(l *rateLimit) error {
		if !isToken(name) {
			return option.Invalid("unit %q, must be a word like content-bytes", name)
		}
		l.unit = name
		return nil
	}
}

// PartitionKey tells clients which quota a request was charged to (parameter pk), for
// clients that use several: a name for it, of which at most 128 bytes are shown.
// Without it nothing is told. Do not show what the client may not know.
func PartitionKey(name KeyFunc) LimitOption {
	return func(l *rateLimit) error {
		l.partition = name
		return option.NotNil(name != nil, "PartitionKey")
	}
}

// HeaderStyle is how clients are told what is left.
type HeaderStyle uint8

const (
	// DraftHeaders are RateLimit-Policy and RateLimit, structured fields (RFC 9651) as
	// in draft-ietf-httpapi-ratelimit-headers-11, which list all limits by the names of
	// their rules:
	//
	//	RateLimit-Policy: "search";q=60;w=60
	//	RateLimit: "search";r=59;t=60
	//
	// q units per w seconds; r are left, and that is what to use at most in the next t
	// seconds. w is left out where the window is no whole number of seconds; of a
	// calendar's month it is 31 days. A limit of [limit.Concurrent] has no w, and a t on a denial
	// only. On a denial RateLimit has the limits in the way,
	// and t is when they no longer are.
	DraftHeaders HeaderStyle = iota
	// XHeaders are X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset, the
	// last in seconds since 1970 as with GitHub, of the one limit that is nearest to
	// its end, or longest in the way.
	XHeaders
	// NoHeaders: clients are told Retry-After on a denial, and nothing else.
	NoHeaders
)

// Headers chooses how clients are told what is left; the default is [DraftHeaders].
func Headers(style HeaderStyle) Option {
	return func(m *middleware) error {
		if style > NoHeaders {
			return option.Invalid("header style %d, must be DraftHeaders, XHeaders or NoHeaders", style)
		}
		m.headers = style
		return nil
	}
}

// Denial is what a handler of [OnDenied] is told, and what [Denied] returns.
type Denial struct {
	// Status is 429 (Too Many Requests), or 503 (Service Unavailable) if Redis cannot be
	// reached and a rule then lets nothing through (tiered.Deny).
	Status int
	// Violated are the names of the rules in the way.
	Violated []string
	// Decisions are those of all limits that apply to the request.
	Decisions []limit.Decision
}

// OnDenied answers denied requests, in place of the problem document that the
// default sends. All headers are set already, Retry-After included, and can be
// changed; the function sends d.Status, or another one, and a body.
func OnDenied(answer func(w http.ResponseWriter, r *http.Request, d Denial)) Option {
	return func(m *middleware) error {
		m.onDenied = answer
		return option.NotNil(answer != nil, "OnDenied")
	}
}

// OnError decides about requests for which the limiter returned an error. The
// function lets the request through by returning true; otherwise it has answered it.
//
// Such errors are mistakes ([limit.ErrInvalidCost], [limit.ErrCostExceedsLimit]),
// [limit.ErrClosed], and those of the request's context. Neither load nor Redis's absence is
// among them. The default answers 500 to mistakes, and logs them, and 503 with Retry-After
// to all others. Never answer 429: the client has not used up anything.
func OnError(decide func(w http.ResponseWriter, r *http.Request, err error) (proceed bool)) Option {
	return func(m *middleware) error {
		m.onError = decide
		return option.NotNil(decide != nil, "OnError")
	}
}

// FailOpen lets requests through for which the limiter returned an error, instead of answering
// 500 or 503: see [OnError], whose place it takes. Mistakes are logged all the same.
func FailOpen() Option {
	return func(m *middleware) error {
		m.onError = func(_ http.ResponseWriter, r *http.Request, err error) bool {
			if admission.IsMistake(err) {
				m.log.Error("a limit could not be decided; requests are let through", "method", r.Method, "pattern", r.Pattern, "error", err)
			}
			return true
		}
		return nil
	}
}

// Logger sets where mistakes are logged, and corrections of [Settle] that failed: a
// line a second at most. The default is slog.Default().
func Logger(logger *slog.Logger) Option {
	return func(m *middleware) error {
		m.log.Logger = logger
		return option.NotNil(logger != nil, "Logger")
	}
}
