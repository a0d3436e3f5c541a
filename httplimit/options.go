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

// Option sets something for a middleware. [New] checks its arguments, and returns an error that
// wraps [limit.ErrInvalidOption].
type Option func(*middleware) error

// Limit adds a limit: a rule, and the key to charge for a request. At least one is needed. A
// middleware's limits are charged together, all or none, in one trip to Redis (see
// tiered.Limiter.AllowAll): for example, a tenant's quota and an endpoint's limit. Each needs a
// rule of its own, whose name is the name of the policy that clients see. At most [tiered.MaxTogether] may
// apply to one request, and one whose rule counts what is denied ([tiered.CountDenied]) only by itself:
// otherwise such requests are a mistake, see [OnError].
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

// LimitOption sets something for one limit of a middleware.
type LimitOption func(*rateLimit) error

// rateLimit is one limit of a middleware.
type rateLimit struct {
	admission.Limit[*http.Request, Response]
	unit      string
	partition KeyFunc // nil: not shown
}

// When sets which requests the limit applies to; others are not charged. Without it the limit
// applies to all.
func When(applies func(*http.Request) bool) LimitOption {
	return func(l *rateLimit) error {
		l.When = applies
		return option.NotNil(applies != nil, "When")
	}
}

// Cost sets how many units a request takes, at least 1; the default is 1. A cost below 1, or above
// what the rule can ever grant, is an error (see [OnError]), so bound values that are taken from
// the request.
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
		return l.RuleFor("RuleFor", choose != nil, func(r *http.Request, _ string) *tiered.Rule { return choose(r) })
	}
}

// RuleForKey chooses the rule by the limit's own key: with a rules file pass its rule's For (see
// rulesfile.Rule.For), with plans a look-up of the tenant. choose is called with the result of the
// limit's [KeyFunc], "" for a request without a key, from many goroutines at a time. nil stands for
// the limit's own rule. A limit can have either RuleForKey or [RuleFor].
func RuleForKey(choose func(key string) *tiered.Rule) LimitOption {
	return func(l *rateLimit) error {
		return l.RuleFor("RuleForKey", choose != nil, func(_ *http.Request, key string) *tiered.Rule { return choose(key) })
	}
}

// Settle corrects the charge when the response is done: the request's [Cost] is reserved before,
// and the function returns what it used in the end. If it used less than reserved, the rest is
// refunded, even all of it, except that under GCRA less comes back the longer the request took (see
// [tiered.Rule.Refund]). If it used more, the excess is charged whether or not it fits: it is debt,
// for which later requests wait (see [tiered.Rule.ChargeUsed]). If the limit must never be exceeded,
// reserve the most that a request may use.
//
// If there is something to correct, it takes a trip to Redis before the end of the response, even
// if the client has gone. If Redis cannot be reached, an unused rest stays charged there, and an
// excess is charged later. The header fields were sent before and reflect the reservation.
func Settle(actual func(*http.Request, Response) int64) LimitOption {
	return func(l *rateLimit) error {
		l.Settle = actual
		return option.NotNil(actual != nil, "Settle")
	}
}

// Unit sets what clients are told is counted, if not requests: "content-bytes" and
// "concurrent-requests" are the draft's other units (parameter qu). The latter is the default for
// rules with a limit of [limit.Concurrent].
func Unit(name string) LimitOption {
	return func(l *rateLimit) error {
		l.unit = name
		return option.Check(isToken(name), "unit %q, must be a word like content-bytes", name)
	}
}

// PartitionKey sets a name of the quota that a request was charged to (parameter pk), for clients
// that use several quotas. At most 128 bytes are sent; without this option none is. Do not send
// anything that the client must not know.
func PartitionKey(name KeyFunc) LimitOption {
	return func(l *rateLimit) error {
		l.partition = name
		return option.NotNil(name != nil, "PartitionKey")
	}
}

// HeaderStyle says in which header fields clients are told what is left.
type HeaderStyle uint8

const (
	// DraftHeaders are RateLimit-Policy and RateLimit, structured fields (RFC 9651) as
	// in draft-ietf-httpapi-ratelimit-headers-11, which list all limits by the names of
	// their rules:
	//
	//	RateLimit-Policy: "search";q=60;w=60
	//	RateLimit: "search";r=59;t=60
	//
	// The quota is q units per w seconds; r units are left for the next t seconds. w is left out if
	// the window is not a whole number of seconds; for a calendar month it is 31 days. A limit of
	// [limit.Concurrent] has no w, and t only on a denial. On a denial RateLimit has the limits
	// that denied the request, and t is the time until they would allow it.
	DraftHeaders HeaderStyle = iota
	// XHeaders are X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset, the last in
	// seconds since 1970 as with GitHub, of the one limit that denies for the longest time, or else
	// is nearest to being used up.
	XHeaders
	// NoHeaders sends only Retry-After on a denial.
	NoHeaders
)

// Headers sets the header fields that tell clients what is left; the default is [DraftHeaders].
func Headers(style HeaderStyle) Option {
	return func(m *middleware) error {
		m.headers = style
		return option.Check(style <= NoHeaders, "header style %d, must be DraftHeaders, XHeaders or NoHeaders", style)
	}
}

// Denial describes a denied request to a function of [OnDenied]; [Denied] returns one, too.
type Denial struct {
	// Status is 429 (Too Many Requests), or 503 (Service Unavailable) if Redis cannot be
	// reached and a rule then lets nothing through (tiered.Deny).
	Status int
	// Violated has the names of the rules that denied the request.
	Violated []string
	// Decisions has the decisions of all limits that apply to the request.
	Decisions []limit.Decision
}

// OnDenied sets a function that answers denied requests, in place of the default, which sends a
// problem document. All headers, including Retry-After, are set already and can be changed; the
// function sends d.Status, or another status, and a body.
func OnDenied(answer func(w http.ResponseWriter, r *http.Request, d Denial)) Option {
	return func(m *middleware) error {
		m.onDenied = answer
		return option.NotNil(answer != nil, "OnDenied")
	}
}

// OnError sets a function that decides about requests for which the limiter returned an error. If
// it returns true, the request is let through; otherwise it must have answered the request.
//
// Such errors are mistakes ([limit.ErrInvalidCost], [limit.ErrCostExceedsLimit]),
// [limit.ErrClosed], and those of the request's context. Neither load nor a lost Redis is such an
// error. The default answers 500 to mistakes, and logs them, and 503 with Retry-After to all
// others. Never answer 429: the client has not used up anything.
func OnError(decide func(w http.ResponseWriter, r *http.Request, err error) (proceed bool)) Option {
	return func(m *middleware) error {
		m.onError = decide
		return option.NotNil(decide != nil, "OnError")
	}
}

// FailOpen lets requests through for which the limiter returned an error, instead of answering 500
// or 503: it replaces [OnError]. Mistakes are still logged.
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

// Logger sets the logger for mistakes, and for failed corrections of [Settle], at most one line a
// second. The default is slog.Default().
func Logger(logger *slog.Logger) Option {
	return func(m *middleware) error {
		m.log.Logger = logger
		return option.NotNil(logger != nil, "Logger")
	}
}
