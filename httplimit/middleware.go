package httplimit

import (
	"net/http"
	"slices"
	"time"

	"github.com/tierlimit/tierlimit/internal/admission"
	"github.com/tierlimit/tierlimit/internal/option"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// New returns a middleware that limits requests. It needs at least one [Limit], and the rules of all
// limits must belong to the limiter. The middleware is safe for concurrent use and may wrap any number
// of handlers, which then share the limits. Errors wrap [limit.ErrInvalidOption].
//
// A request is charged before the handler is called, and stays charged whatever the
// handler does, unless [Settle] says otherwise. Units of a rule with a limit of [limit.Concurrent]
// are held until the handler returns, however long it streams, or panics.
func New(limiter *tiered.Limiter, options ...Option) (func(http.Handler) http.Handler, error) {
	m := &middleware{limiter: limiter, onDenied: sendDenial, log: admission.NewLog("httplimit: ")}
	m.onError = m.answerError
	if limiter == nil {
		return nil, option.Invalid("the limiter is nil")
	}
	if err := option.Apply(m, options); err != nil {
		return nil, err
	}
	if len(m.limits) == 0 {
		return nil, option.Invalid("no Limit was given, a middleware needs at least one")
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.serve(w, r, next) })
	}, nil
}

type middleware struct {
	limiter   *tiered.Limiter
	limits    []*rateLimit
	names     admission.Names // of the limits' rules
	headers   HeaderStyle
	settles   bool // at least one limit has Settle or HandlerCost
	records   bool // at least one limit has Settle, whose function gets the response
	inContext bool // handlers may read the decisions, or set what a request used
	onDenied  func(http.ResponseWriter, *http.Request, Denial)
	onError   func(http.ResponseWriter, *http.Request, error) bool
	log       *admission.Log
}

// few is the number of limits that are decided without allocating lists.
const few = 2

func (m *middleware) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	var limitSpace [few]*rateLimit
	var requestSpace [few]tiered.Request
	limits, requests := m.requests(r, limitSpace[:0], requestSpace[:0])
	if len(requests) == 0 {
		next.ServeHTTP(w, r)
		return
	}
	var decisionSpace [few]limit.Decision
	decisions := slices.Grow(decisionSpace[:0], len(requests))[:len(requests)]
	ctx := r.Context()
	if m.settles {
		ctx = admission.Lasting(ctx)
	}
	grants, err := admission.Decide(ctx, m.limiter, requests, decisions)
	if grants != nil {
		defer grants.End(r.Context())
	}
	if err != nil {
		if m.onError(w, r, err) {
			next.ServeHTTP(w, r)
		}
		return
	}
	var decidedSpace [few]Decided
	decided := decidedSpace[:0]
	for i, l := range limits {
		d := Decided{Rule: requests[i].Rule, Key: requests[i].Key, Decision: decisions[i], Unit: l.unit}
		if l.partition != nil {
			d.Partition = l.partition(r)
		}
		decided = append(decided, d)
	}
	var fieldSpace [maxFields]field
	setFields(w.Header(), appendFields(fieldSpace[:0], m.headers, decided))
	if denial, denied := Denied(decided...); denied {
		m.onDenied(w, r, denial)
		return
	}
	var said *admission.ReportedCost
	if m.inContext {
		ctx := hand(r.Context(), decided)
		if slices.ContainsFunc(limits, func(l *rateLimit) bool { return l.ByHandler }) {
			ctx, said = admission.WithReportedCost(ctx)
		}
		outer, inner := r, r.WithContext(ctx)
		defer func() {
			outer.Pattern = inner.Pattern             // outer middlewares read there which pattern a mux matched
			outer.MultipartForm = inner.MultipartForm // the server removes its files when the request is over
		}()
		r = inner
	}
	if m.settles {
		m.serveAndSettle(w, r, next, said, limits, requests, decisions)
		return
	}
	next.ServeHTTP(w, r)
}

// requests appends the limits that apply to a request, and what to charge for each.
func (m *middleware) requests(r *http.Request, limits []*rateLimit, requests []tiered.Request) ([]*rateLimit, []tiered.Request) {
	for _, l := range m.limits {
		if q, applies := l.Request(r); applies {
			limits, requests = append(limits, l), append(requests, q)
		}
	}
	return limits, requests
}

// serveAndSettle serves an admitted request and settles its charges, even if the handler panics or
// the client goes away.
func (m *middleware) serveAndSettle(w http.ResponseWriter, r *http.Request, next http.Handler, said *admission.ReportedCost, limits []*rateLimit, requests []tiered.Request, decisions []limit.Decision) {
	recorded := &recorder{ResponseWriter: w}
	if m.records {
		w = recorded
	}
	began, aborted := time.Now(), true
	defer func() {
		response := recorded.response(aborted)
		ctx := admission.Afterwards(r.Context())
		for i, l := range limits {
			used, known := l.Used(r, response, said)
			if !known {
				continue
			}
			if err := admission.Settle(ctx, requests[i], &decisions[i], used, time.Since(began)); err != nil {
				m.log.Warn("a charge could not be corrected", "rule", requests[i].Rule.Name(), "error", err)
			}
		}
	}()
	next.ServeHTTP(w, r)
	aborted = false
}

// answerError is the default for [OnError].
func (m *middleware) answerError(w http.ResponseWriter, r *http.Request, err error) bool {
	status := http.StatusServiceUnavailable
	w.Header()[fieldCacheControl] = []string{noStore}
	if admission.IsMistake(err) {
		status = http.StatusInternalServerError
		m.log.Error("a limit could not be decided; requests get status 500", "method", r.Method, "pattern", r.Pattern, "error", err)
	} else {
		w.Header()[fieldRetryAfter] = []string{"1"}
	}
	sendError(w, status)
	return false
}
