package httplimit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/tierlimit/tierlimit/internal/admission"
	"github.com/tierlimit/tierlimit/internal/keys"
	"github.com/tierlimit/tierlimit/internal/option"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// The reasons why a [Transport] did not send a request. It returns a [*NotSentError] that wraps one of
// them; http.Client wraps that error in a *url.Error. Nothing stays charged, unless Redis is slow or
// lost at that time (see [MaxWait]).
var (
	// ErrQuota means that the quota has no room for the request within the time that it may wait.
	ErrQuota = errors.New("httplimit: the upstream's quota is used up")
	// ErrUncounted means that Redis cannot be asked, and that the rule's outage policy is tiered.Deny.
	ErrUncounted = errors.New("httplimit: requests cannot be counted at the moment, because Redis is not available")
	// ErrHeldBack means that the upstream asked for a pause (status 429 or 503 with Retry-After)
	// that is longer than the request may wait.
	ErrHeldBack = errors.New("httplimit: the upstream asked for no requests for a while")
)

// NotSentError is the error of a request that was not sent.
type NotSentError struct {
	// Reason is ErrQuota, ErrUncounted or ErrHeldBack.
	Reason error
	// Host is the upstream's host.
	Host string
	// RetryAfter is how long to wait before another try, counted from the moment when the error was returned.
	// It is 0 if the wait is not known, because the request's time was over before Redis had answered: there
	// may be room already.
	RetryAfter time.Duration
}

// Error returns a text that names the reason, the host and the wait.
func (e *NotSentError) Error() string {
	return fmt.Sprintf("%v: no request was sent to %s; try again in %v", e.Reason, e.Host, e.RetryAfter.Round(time.Millisecond))
}

// Unwrap returns the reason, for errors.Is.
func (e *NotSentError) Unwrap() error { return e.Reason }

// DefaultMaxWait is the default of [MaxWait].
const DefaultMaxWait = time.Minute

// DefaultMaxHold is the default of [MaxHold].
const DefaultMaxHold = 10 * time.Minute

// Transport is an http.RoundTripper that keeps a fleet within the quota of the
// services it calls: all processes that use rules of the same name on the same Redis
// share it. Make it with [NewTransport]. It is safe for concurrent use.
//
// A request that does not fit waits, but not beyond its context's deadline (which an http.Client's
// Timeout also sets) or [MaxWait]. If it would have to wait longer, it fails at once with a
// [*NotSentError]. Requests of one process under the same key are sent first come, first served; there
// is no order among processes (see tiered.Rule.Wait).
//
// When a host answers 429 or 503 with Retry-After, this process sends it nothing more under the same
// key (see [TransportKey]) until the time is over, or for [MaxHold] at most. Requests with other keys,
// such as other tenants' credentials, are not affected. The answer itself goes to the caller: the
// transport does not repeat the request. At most 1,024 such pauses are remembered at a time; beyond
// that, the pauses that end first are forgotten.
//
// A request is charged before it is sent. It stays charged if it fails, because the transport cannot
// know whether the upstream counted it.
//
// A request is charged once, even if base sends it again. An http.Transport does so if the upstream
// closes a connection that was kept alive before it answers, and the request is idempotent and its body,
// if any, can be read again. If the upstream may have counted the first attempt, such as one that closes
// connections after it has read a request, set DisableKeepAlives in base.
type Transport struct {
	base    http.RoundTripper
	rule    *tiered.Rule
	key     KeyFunc
	cost    func(*http.Request) int64
	maxWait time.Duration
	holds   holds
}

// TransportOption configures a [Transport].
type TransportOption func(*Transport) error

// NewTransport returns a transport that charges a request to a rule before it passes the request on to
// base, or to http.DefaultTransport if base is nil. The rule's limit must be a rate: a limit of
// [limit.Concurrent] is refused. Errors wrap [limit.ErrInvalidOption].
func NewTransport(base http.RoundTripper, rule *tiered.Rule, options ...TransportOption) (*Transport, error) {
	if err := admission.CheckOutgoing(rule, "transport"); err != nil {
		return nil, err
	}
	if base == nil {
		base = http.DefaultTransport
	}
	t := &Transport{
		base:    base,
		rule:    rule,
		key:     Host,
		cost:    func(*http.Request) int64 { return 1 },
		maxWait: DefaultMaxWait,
		holds:   newHolds(DefaultMaxHold),
	}
	if err := option.Apply(t, options); err != nil {
		return nil, err
	}
	return t, nil
}

// Host returns the host that an outgoing request goes to, in lower case and without a trailing dot. The
// port is included unless it is the scheme's default. An IPv6 address is in brackets and in its
// shortest form. Host is the default key of a [Transport].
func Host(r *http.Request) string {
	host := strings.TrimSuffix(strings.ToLower(r.URL.Hostname()), ".")
	if address, _ := netip.ParseAddr(host); address.Is6() {
		host = "[" + address.String() + "]"
	}
	port := strings.TrimLeft(r.URL.Port(), "0") // net.Dial reads 0443 as 443
	if port == "" || port == "443" && r.URL.Scheme == "https" || port == "80" && r.URL.Scheme == "http" {
		return host
	}
	return host + ":" + port
}

// TransportKey sets which quota an outgoing request uses; the default is [Host]. If a service has a
// quota for each credential, the key must distinguish credentials, but must not be the credential
// itself, because keys are stored in Redis.
func TransportKey(key KeyFunc) TransportOption {
	return option.Set(func(t *Transport) { t.key = key }, key != nil, "TransportKey was given nil")
}

// TransportCost sets how many units of the quota an outgoing request uses, at least 1; the default
// is 1.
func TransportCost(of func(*http.Request) int64) TransportOption {
	return option.Set(func(t *Transport) { t.cost = of }, of != nil, "TransportCost was given nil")
}

// MaxWait bounds how long a request waits for quota; the default is [DefaultMaxWait]. With 0 no request
// waits. Except for 0, do not choose less than the limiter's deadline (tiered.Deadline, 50 ms by
// default). The time to ask Redis is part of the wait, so while Redis is slow, a request would get
// [ErrQuota] although the quota has room, and the request might be charged.
func MaxWait(d time.Duration) TransportOption {
	return option.Set(func(t *Transport) { t.maxWait = d }, d >= 0, "longest wait %v, must not be negative", d)
}

// MaxHold bounds how long an upstream's Retry-After is respected; the default is [DefaultMaxHold], 10
// minutes. With 0, Retry-After is ignored.
func MaxHold(d time.Duration) TransportOption {
	return option.Set(func(t *Transport) { t.holds.longest = d }, d >= 0, "longest hold %v, must not be negative", d)
}

// RoundTrip sends a request when the quota has room for it. Its errors are a [*NotSentError], the
// errors of tiered.Rule.Wait, and the errors of the base transport.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	u := upstream{host: Host(r), key: keys.OrNone(t.key(r))}
	if err := t.admit(r, u); err != nil {
		if r.Body != nil { // a RoundTripper always closes the body
			_ = r.Body.Close()
		}
		return nil, err
	}
	response, err := t.base.RoundTrip(r)
	if err != nil || response == nil { // http.Client reports a base that returns neither
		return response, err
	}
	if response.StatusCode == http.StatusTooManyRequests || response.StatusCode == http.StatusServiceUnavailable {
		if after, ok := retryAfter(response.Header, time.Now()); ok {
			t.holds.hold(u, after)
		}
	}
	return response, nil
}

// CloseIdleConnections closes the idle connections of the base transport.
func (t *Transport) CloseIdleConnections() {
	if base, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

// admit waits until the upstream may be called and the request is charged.
func (t *Transport) admit(r *http.Request, u upstream) error {
	ctx, cancel := context.WithTimeout(r.Context(), t.maxWait)
	defer cancel()
	cost := t.cost(r)
	for {
		if err := t.waitForHold(r.Context(), ctx, u); err != nil {
			return err
		}
		d, err := admission.Wait(r.Context(), ctx, t.maxWait, t.rule, u.key, cost)
		switch {
		case errors.Is(err, limit.ErrWouldExceedDeadline) && admission.UnderOutagePolicy(t.rule, &d):
			return &NotSentError{Reason: ErrUncounted, Host: u.host, RetryAfter: d.RetryAfter}
		case errors.Is(err, limit.ErrWouldExceedDeadline):
			return &NotSentError{Reason: ErrQuota, Host: u.host, RetryAfter: d.RetryAfter}
		case err != nil:
			return err
		case t.holds.left(u) == 0 && r.Context().Err() == nil:
			return nil
		}
		// While this request waited, the upstream asked for a pause, or the request's context ended, which ends the
		// next attempt. If the refund fails because Redis is lost, the units stay charged, like those of a request
		// that fails.
		_ = t.rule.Refund(admission.Afterwards(ctx), u.key, &d, d.Granted)
	}
}

// waitForHold waits until an upstream's pause is over. ctx ends with the longest wait, and request with
// the request.
func (t *Transport) waitForHold(request, ctx context.Context, u upstream) error {
	for {
		wait := t.holds.left(u)
		if wait == 0 {
			return nil
		}
		if deadline, _ := ctx.Deadline(); time.Until(deadline) <= wait {
			return &NotSentError{Reason: ErrHeldBack, Host: u.host, RetryAfter: wait}
		}
		select {
		case <-time.After(wait):
		case <-request.Done():
			return request.Err()
		}
	}
}
