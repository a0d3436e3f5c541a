package grpclimit

import (
	"context"
	"errors"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/tierlimit/tierlimit/internal/admission"
	"github.com/tierlimit/tierlimit/internal/keys"
	"github.com/tierlimit/tierlimit/internal/option"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// DefaultMaxWait is the default of [MaxWait].
const DefaultMaxWait = time.Minute

// Client keeps a fleet within the quota of a service it calls: all processes that use
// rules of the same name on the same Redis share it. Its methods Unary and Stream are
// interceptors. It is immutable and safe for concurrent use.
//
// A call that does not fit waits, but not beyond its context's deadline or [MaxWait]. If it would have
// to wait longer, it is not sent. It then ends at once with RESOURCE_EXHAUSTED, RetryInfo and
// QuotaFailure, as if the service had denied it. Calls of one process under the same key are sent first
// come, first served; there is no order among processes (see tiered.Rule.Wait).
//
// If the limiter returns an error about a call, the call is not sent either. Its status has the code
// that the server's default sends (see [OnError]) and includes the error's text. A call is charged
// before it is sent, and stays charged if it fails. If its context has ended by the time it is charged, it is not
// sent, and its units are given back.
//
// A call is charged once, even if gRPC sends it again: retries by the retryPolicy of a service config
// are made below the interceptors. If the quota must count retries, turn them off with
// grpc.WithDisableRetry, and retry in the program, whose calls are charged each time.
//
// Calls are charged before there is a connection to the service. Those that wait for one, such as calls
// with grpc.WaitForReady while the service is down, are sent all at once when there is one.
type Client struct {
	rule    *tiered.Rule
	key     KeyFunc
	cost    func(context.Context, string, any) int64
	maxWait time.Duration
}

// ClientOption configures a [Client].
type ClientOption func(*Client) error

// NewClient returns interceptors that charge calls to a rule before they are sent. The rule's limit
// must be a rate: a limit of [limit.Concurrent] is refused. Errors wrap [limit.ErrInvalidOption].
func NewClient(rule *tiered.Rule, options ...ClientOption) (*Client, error) {
	if err := admission.CheckOutgoing(rule, "client"); err != nil {
		return nil, err
	}
	c := &Client{rule: rule, key: Everyone, maxWait: DefaultMaxWait}
	if err := option.Apply(c, options); err != nil {
		return nil, err
	}
	return c, nil
}

// ClientKey sets which quota a call uses, such as a quota for its [Method]. By default, all calls share
// one quota. [Metadata] and [Peer] do not work here, because they read calls that a server receives:
// they know neither the metadata that a call is sent with nor its destination.
func ClientKey(key KeyFunc) ClientOption {
	return option.Set(func(c *Client) { c.key = key }, key != nil, "ClientKey was given nil")
}

// ClientCost sets how many units a call takes, at least 1; the default is 1. message is the request
// of a unary call, and nil for a stream.
func ClientCost(of func(ctx context.Context, method string, message any) int64) ClientOption {
	return option.Set(func(c *Client) { c.cost = of }, of != nil, "ClientCost was given nil")
}

// MaxWait bounds how long a call waits for quota; the default is [DefaultMaxWait]. With 0 no call
// waits. Except for 0, do not choose less than the limiter's deadline (tiered.Deadline, 50 ms by
// default). The time to ask Redis is part of the wait, so while Redis is slow, a call would end with
// RESOURCE_EXHAUSTED although the quota has room, and the call might be charged.
func MaxWait(d time.Duration) ClientOption {
	return option.Set(func(c *Client) { c.maxWait = d }, d >= 0, "longest wait %v, must not be negative", d)
}

// Unary is a grpc.UnaryClientInterceptor.
func (c *Client) Unary(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	if err := c.wait(ctx, method, request); err != nil {
		return err
	}
	return invoke(ctx, method, request, reply, conn, options...)
}

// Stream is a grpc.StreamClientInterceptor. It charges the opening of a stream.
func (c *Client) Stream(ctx context.Context, description *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
	if err := c.wait(ctx, method, nil); err != nil {
		return nil, err
	}
	return open(ctx, description, conn, method, options...)
}

// wait waits until a call is charged. If the call may not wait that long, wait returns the call's final
// status.
func (c *Client) wait(ctx context.Context, method string, message any) error {
	key, cost := keys.OrNone(c.key(ctx, method)), int64(1)
	if c.cost != nil {
		cost = c.cost(ctx, method, message)
	}
	waiting, cancel := context.WithTimeout(ctx, c.maxWait)
	defer cancel()
	d, err := admission.Wait(ctx, waiting, c.maxWait, c.rule, key, cost)
	switch {
	case err == nil && ctx.Err() == nil:
		return nil
	case err == nil: // gRPC would not send the call; if the refund fails, it stays charged, like a call that fails
		_ = c.rule.Refund(admission.Afterwards(ctx), key, &d, d.Granted)
		return errorStatus(ctx.Err(), "")
	case !errors.Is(err, limit.ErrWouldExceedDeadline):
		return errorStatus(err, ": "+err.Error()) // the program itself may read the error
	case admission.UnderOutagePolicy(c.rule, &d):
		return withDetails(codes.Unavailable, "not sent: calls cannot be counted at the moment", retryInfo(d.RetryAfter))
	}
	quota := &errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{violation(c.rule)}}
	return withDetails(codes.ResourceExhausted, "not sent: the quota is used up", retryInfo(d.RetryAfter), quota)
}
