package grpclimit

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/tierlimit/tierlimit/internal/admission"
	"github.com/tierlimit/tierlimit/internal/option"
	"github.com/tierlimit/tierlimit/tiered"
)

// Option configures a server's interceptors. [NewServer] checks the option's arguments, and
// returns an error that wraps [limit.ErrInvalidOption].
type Option func(*Server) error

// Limit adds a limit: a rule, and the key to charge for a call. A server needs at least one. Its limits
// are charged together, all or none, in one trip to Redis (see tiered.Limiter.AllowAll). Each limit
// needs a rule of its own.
//
// At most [tiered.MaxTogether] limits may apply to one call. A limit whose rule counts denied calls
// ([tiered.CountDenied]) must be the only one that applies. A call that breaks either rule is a
// mistake, see [OnError].
func Limit(rule *tiered.Rule, key KeyFunc, options ...LimitOption) Option {
	return func(s *Server) error {
		if err := s.names.Add(s.limiter, rule, key != nil); err != nil {
			return err
		}
		l := &rateLimit{Limit: admission.Limit[call, Result]{Rule: rule, Key: func(c call) string { return key(c.ctx, c.method) }}}
		if err := option.Apply(l, options); err != nil {
			return fmt.Errorf("limit %q: %w", rule.Name(), err)
		}
		if rule.Limit().IsConcurrent() && l.perMessage {
			return option.Invalid("limit %q is PerMessage, but is a concurrency limit, whose units are held until the stream ends", rule.Name())
		}
		if err := l.CheckSettling(); err != nil {
			return err
		}
		if l.Settles() && l.perMessage {
			return option.Invalid("limit %q has Settle or HandlerCost, but is PerMessage: the charge for a message cannot be corrected later", rule.Name())
		}
		s.limits = append(s.limits, l)
		s.settles = s.settles || l.Settles()
		s.perMessage = s.perMessage || l.perMessage
		return nil
	}
}

// LimitOption configures one limit of a server.
type LimitOption func(*rateLimit) error

// rateLimit is one limit of a server.
type rateLimit struct {
	admission.Limit[call, Result]
	perMessage bool
}

// call has the properties of a call that its limits need. message is the message that [Cost] gets.
type call struct {
	ctx     context.Context
	method  string
	message any
}

// When sets which calls the limit applies to, by context and full method name; it does not charge other
// calls. Without When, the limit applies to all calls.
func When(applies func(ctx context.Context, method string) bool) LimitOption {
	return option.Set(func(l *rateLimit) { l.When = func(c call) bool { return applies(c.ctx, c.method) } },
		applies != nil, "When was given nil")
}

// Cost sets how many units a call takes, at least 1; the default is 1. message is the request of a
// unary call, the message received under [PerMessage], and nil when a stream opens. A cost below 1, or
// above what the rule can ever grant, is an error (see [OnError]), so check the range of values that
// are taken from the message.
func Cost(of func(ctx context.Context, method string, message any) int64) LimitOption {
	return option.Set(func(l *rateLimit) { l.Cost = func(c call) int64 { return of(c.ctx, c.method, c.message) } },
		of != nil, "Cost was given nil")
}

// RuleFor chooses the rule for a call, such as the rule of its tenant's plan (see
// tiered.Rule.WithLimit), or the newest version of a rule that changes at run time. If choose returns
// nil, the limit's own rule applies.
func RuleFor(choose func(ctx context.Context, method string) *tiered.Rule) LimitOption {
	return func(l *rateLimit) error {
		return l.RuleFor("RuleFor", choose != nil, func(c call, _ string) *tiered.Rule { return choose(c.ctx, c.method) })
	}
}

// RuleForKey chooses the rule by the limit's own key. With a rules file, pass the method For of its
// rule (see rulesfile.Rule.For); with plans, pass a function that looks up the tenant's plan. Many
// goroutines at a time call choose, with the result of the limit's [KeyFunc], "" for none. If choose
// returns nil, the limit's own rule applies. A limit can have either RuleForKey or [RuleFor].
func RuleForKey(choose func(key string) *tiered.Rule) LimitOption {
	return func(l *rateLimit) error {
		return l.RuleFor("RuleForKey", choose != nil, func(_ call, key string) *tiered.Rule { return choose(key) })
	}
}

// PerMessage charges a stream not only for its opening, but also for each message that the client sends
// on it. A denied message ends the stream: receiving it returns the status, which the handler should
// return. Without PerMessage, an open stream may carry any number of messages. If [RuleFor] or
// [RuleForKey] chooses a rule with a limit of [limit.Concurrent], messages take nothing: the stream
// holds its units from its opening to its end.
func PerMessage() LimitOption {
	return option.Always(func(l *rateLimit) { l.perMessage = true })
}

// Logger sets the logger for mistakes (see [OnError]), and for corrections of [Settle] and
// [HandlerCost] that failed. At most one line a second is logged. The default is slog.Default().
func Logger(logger *slog.Logger) Option {
	return option.Set(func(s *Server) { s.log.Logger = logger }, logger != nil, "Logger was given nil")
}

// OnError sets a function that decides about a call for which the limiter returned an error. If it
// returns nil, the call is let through; otherwise the call ends with the returned error. A lost Redis
// is not such an error.
//
// By default, mistakes ([limit.ErrInvalidCost], [limit.ErrCostExceedsLimit]) end with INTERNAL and are
// logged. The context's own errors end with CANCELLED or DEADLINE_EXCEEDED, and all others
// ([limit.ErrClosed]) with UNAVAILABLE and RetryInfo. The client does not learn what the error is. Never
// return RESOURCE_EXHAUSTED: the client has not used up anything.
func OnError(decide func(ctx context.Context, method string, err error) error) Option {
	return option.Set(func(s *Server) { s.onError = decide }, decide != nil, "OnError was given nil")
}
