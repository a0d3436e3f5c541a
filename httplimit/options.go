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

// Option configures a middleware. [New] checks the option's arguments, and returns an error
// that wraps [limit.ErrInvalidOption].
type Option func(*middleware) error

// Limit adds a limit: a rule, and the key to charge for a request. A middleware needs at least one. Its
// limits are charged together, all or none, in one trip to Redis (see tiered.Limiter.AllowAll): for
// example, a tenant's quota and an endpoint's limit. Each limit needs a rule of its own, whose name is
// the policy name that clients see.
//
// At most [tiered.MaxTogether] limits may apply to one request. A limit whose rule counts denied
// requests ([tiered.CountDenied]) must be the only one that applies. A request that breaks either rule
// is a mistake, see [OnError].
func Limit(rule *tiered.Rule, key KeyFunc, options ...LimitOption) Option {
	return func(m *middleware) error {
		if err := m.names.Add(m.limiter, rule, key != nil); err != nil {
			return err
		}
		l := &rateLimit{Limit: admission.Limit[*http.Request, Response]{Rule: rule, Key: key}}
		if err := option.Apply(l, options); err != nil {
			return fmt.Errorf("limit %q: %w", rule.Name(), err)
		}
		if err := l.CheckSettling(); err != nil {
			return err
		}
		m.limits = append(m.limits, l)
		m.records = m.records || l.Settle != nil
		m.settles = m.settles || l.Settles()
		m.inContext = m.inContext || l.ByHandler
		return nil
	}
}

// LimitOption configures one limit of a middleware.
type LimitOption func(*rateLimit) error

// rateLimit is one limit of a middleware.
type rateLimit struct {
	admission.Limit[*http.Request, Response]
	unit      string
	partition KeyFunc // nil if it is not sent
}

// When sets which requests the limit applies to; it does not charge other requests. Without When, the
// limit applies to all requests.
func When(applies func(*http.Request) bool) LimitOption {
	return option.Set(func(l *rateLimit) { l.When = applies }, applies != nil, "When was given nil")
}

// Cost sets how many units a request takes, at least 1; the default is 1. A cost below 1, or above what
// the rule can ever grant, is an error (see [OnError]), so check the range of values that are taken
// from the request.
func Cost(of func(*http.Request) int64) LimitOption {
	return option.Set(func(l *rateLimit) { l.Cost = of }, of != nil, "Cost was given nil")
}

// RuleFor chooses the rule for a request, such as the rule of its tenant's plan (see
// tiered.Rule.WithLimit), or the newest version of a rule that changes at run time. If choose returns
// nil, the limit's own rule applies.
func RuleFor(choose func(*http.Request) *tiered.Rule) LimitOption {
	return func(l *rateLimit) error {
		return l.RuleFor("RuleFor", choose != nil, func(r *http.Request, _ string) *tiered.Rule { return choose(r) })
	}
}

// RuleForKey chooses the rule by the limit's own key. With a rules file, pass the method For of its
// rule (see rulesfile.Rule.For); with plans, pass a function that looks up the tenant's plan. Many
// goroutines at a time call choose, with the result of the limit's [KeyFunc], "" for none. If choose
// returns nil, the limit's own rule applies. A limit can have either RuleForKey or [RuleFor].
func RuleForKey(choose func(key string) *tiered.Rule) LimitOption {
	return func(l *rateLimit) error {
		return l.RuleFor("RuleForKey", choose != nil, func(_ *http.Request, key string) *tiered.Rule { return choose(key) })
	}
}

// Settle corrects the charge when the response is done. The request's [Cost] is reserved before the
// handler runs, and the function returns what the request used in the end. If the request used less
// than was reserved, the rest is refunded, even all of it; under GCRA, less comes back the longer the
// request took (see [tiered.Rule.Refund]). If the request used more, the excess is charged whether or
// not it fits: it is debt, for which later requests wait (see [tiered.Rule.ChargeUsed]). If the limit
// must never be exceeded, reserve the most that a request may use.
//
// A correction takes a trip to Redis before the end of the response, even if the client has gone. If
// Redis cannot be reached, an unused rest stays charged there, and an excess is charged later, unless
// its answer was lost (see [tiered.Rule.ChargeUsed]). The header fields were sent earlier and reflect
// the reservation.
//
// If a request ends while Redis decides about it, and a limit of the middleware has Settle or [HandlerCost],
// the decision is awaited, and the handler is called with the request's ended context. Otherwise what was
// reserved could stay charged.
func Settle(actual func(*http.Request, Response) int64) LimitOption {
	return option.Set(func(l *rateLimit) { l.Settle = actual }, actual != nil, "Settle was given nil")
}

// Unit sets the name of the counted unit in header fields (parameter qu), if the unit is not
// requests. The draft's other units are "content-bytes" and "concurrent-requests". The latter is the
// default under a limit of [limit.Concurrent].
func Unit(name string) LimitOption {
	return option.Set(func(l *rateLimit) { l.unit = name },
		isToken(name), "unit %q, must be a word like content-bytes", name)
}

// PartitionKey sets a name for the quota that a request was charged to (parameter pk), for clients that
// use several quotas. At most 128 bytes are sent. Without this option, no name is sent. Do not send
// anything that the client must not know.
func PartitionKey(name KeyFunc) LimitOption {
	return option.Set(func(l *rateLimit) { l.partition = name }, name != nil, "PartitionKey was given nil")
}

// HeaderStyle selects the header fields that tell clients what is left.
type HeaderStyle uint8

const (
	// DraftHeaders are RateLimit-Policy and RateLimit, structured fields (RFC 9651) as
	// in draft-ietf-httpapi-ratelimit-headers-11, which list all limits by the names of
	// their rules:
	//
	//	RateLimit-Policy: "search";q=60;w=60
	//	RateLimit: "search";r=59;t=60
	//
	// The quota is q units per w seconds; r units are left for the next t seconds. w is left out if the
	// window is not a whole number of seconds; for a calendar month it is 31 days. A limit of
	// [limit.Concurrent] has no w, and has t only on a denial. On a denial, RateLimit lists the limits
	// that denied the request, and t is the time until they would allow it.
	DraftHeaders HeaderStyle = iota
	// XHeaders are X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset. The last is in
	// seconds since 1970, as with GitHub. They describe one limit: the limit that denies for the
	// longest time, or, if none denies, the limit that is nearest to being used up.
	XHeaders
	// NoHeaders sends only Retry-After on a denial.
	NoHeaders
)

// Headers sets the header fields that tell clients what is left; the default is [DraftHeaders].
func Headers(style HeaderStyle) Option {
	return option.Set(func(m *middleware) { m.headers = style },
		style <= NoHeaders, "header style %d, must be DraftHeaders, XHeaders or NoHeaders", style)
}

// Denial describes a denied request to a function of [OnDenied]. [Denied] also returns a Denial.
type Denial struct {
	// Status is 429 (Too Many Requests), or 503 (Service Unavailable) if Redis cannot be reached and a
	// rule then lets nothing through (tiered.Deny).
	Status int
	// Violated has the names of the rules that denied the request.
	Violated []string
	// Decisions has the decisions of all limits that apply to the request.
	Decisions []limit.Decision
}

// OnDenied sets a function that answers denied requests. It replaces the default, which sends a problem
// document. All headers, including Retry-After, are already set when the function is called, and the
// function can change them. It sends d.Status, or another status, and a body.
func OnDenied(answer func(w http.ResponseWriter, r *http.Request, d Denial)) Option {
	return option.Set(func(m *middleware) { m.onDenied = answer }, answer != nil, "OnDenied was given nil")
}

// OnError sets a function that decides about a request for which the limiter returned an error. If it
// returns true, the request is let through; otherwise the function must have answered the request.
//
// Such errors are mistakes ([limit.ErrInvalidCost], [limit.ErrCostExceedsLimit]), [limit.ErrClosed],
// and the errors of the request's context. Neither load nor a lost Redis causes such an error. By
// default, a mistake is logged and answered with 500, and any other error is answered with 503 and
// Retry-After. Never answer 429: the client has not used up anything.
func OnError(decide func(w http.ResponseWriter, r *http.Request, err error) (proceed bool)) Option {
	return option.Set(func(m *middleware) { m.onError = decide }, decide != nil, "OnError was given nil")
}

// FailOpen lets requests through for which the limiter returned an error, instead of answering 500 or
// 503. It replaces [OnError]. Mistakes are still logged.
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

// Logger sets the logger for mistakes, and for corrections of [Settle] that failed. At most one line a
// second is logged. The default is slog.Default().
func Logger(logger *slog.Logger) Option {
	return option.Set(func(m *middleware) { m.log.Logger = logger }, logger != nil, "Logger was given nil")
}
