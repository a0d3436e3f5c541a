package grpclimit

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/tierlimit/tierlimit/internal/outage"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// A call that several limits deny is told the longest wait, and what each limit is. It ends with UNAVAILABLE if any of
// them denied only because Redis is lost, whichever that is.
func TestStatusOfSeveralDenials(t *testing.T) {
	l := newLimiter(t)
	rate := tiered.Request{Rule: newRule(t, l, "rate", limit.PerMinute(7))}
	slots := tiered.Request{Rule: newRule(t, l, "slots", limit.Concurrent(3))}
	lost := tiered.Request{Rule: newRule(t, l, "lost", limit.PerMinute(1), tiered.OnOutage(tiered.Deny))}
	usedUp, taken := limit.Decision{RetryAfter: 5 * time.Second}, limit.Decision{RetryAfter: 9 * time.Second}
	byOutage := limit.Decision{Tier: limit.TierFallback, RetryAfter: outage.ProbeEvery}

	err := deniedStatus([]tiered.Request{slots, rate}, []limit.Decision{taken, usedUp})
	if code, retry, _ := details(err); code != codes.ResourceExhausted || retry.GetRetryDelay().AsDuration() != 9*time.Second {
		t.Errorf("%v, retry after %v", code, retry.GetRetryDelay().AsDuration())
	}
	var descriptions []string
	for _, detail := range status.Convert(err).Details() {
		if quota, ok := detail.(*errdetails.QuotaFailure); ok {
			for _, v := range quota.GetViolations() {
				descriptions = append(descriptions, v.GetSubject()+": "+v.GetDescription())
			}
		}
	}
	if got := strings.Join(descriptions, "; "); got != "slots: the concurrency limit of 3 is reached; rate: the quota of 7 per 1m is used up" {
		t.Error(got)
	}
	for _, err := range []error{
		deniedStatus([]tiered.Request{lost, rate}, []limit.Decision{byOutage, usedUp}),
		deniedStatus([]tiered.Request{rate, lost}, []limit.Decision{usedUp, byOutage}),
	} {
		if code, retry, violated := details(err); code != codes.Unavailable || retry.GetRetryDelay().AsDuration() != 5*time.Second || violated != nil {
			t.Errorf("%v, retry after %v, violated %v", code, retry.GetRetryDelay().AsDuration(), violated)
		}
	}
}

// The end of a call's context is not the service's failure, and only mistakes are logged: clients that go away would
// fill the log.
func TestStatusAndLogOfErrors(t *testing.T) {
	l := newLimiter(t)
	var log bytes.Buffer
	s := newServer(t, l, Limit(newRule(t, l, "api", limit.PerHour(1)), Everyone), Logger(slog.New(slog.NewTextHandler(&log, nil))))
	for _, c := range []struct {
		err    error
		code   codes.Code
		logged bool
	}{
		{context.Canceled, codes.Canceled, false},
		{context.DeadlineExceeded, codes.DeadlineExceeded, false},
		{limit.ErrClosed, codes.Unavailable, false},
		{limit.ErrInvalidCost, codes.Internal, true},
	} {
		log.Reset()
		err := s.answerError(t.Context(), "/a/b", c.err)
		if status.Code(err) != c.code || (log.Len() > 0) != c.logged || strings.Contains(err.Error(), c.err.Error()) && c.code != codes.Canceled && c.code != codes.DeadlineExceeded {
			t.Errorf("%v: %v, logged %q", c.err, err, log.String())
		}
	}
}

// failing is a stream on which nothing can be sent.
type failing struct {
	grpc.ServerStream
	ctx context.Context
}

var errSend = errors.New("the client has gone")

func (s failing) Context() context.Context { return s.ctx }
func (failing) SendMsg(any) error          { return errSend }

// The handler learns that a message could not be sent, and the message does not count as sent.
func TestMessagesThatCouldNotBeSent(t *testing.T) {
	l := newLimiter(t)
	var sent Volume
	server := newServer(t, l, Limit(newRule(t, l, "api", limit.PerHour(9)), Everyone, Settle(func(_ context.Context, _ string, r Result) int64 {
		sent = r.Sent
		return 1
	})))
	err := server.Stream(nil, failing{ctx: t.Context()}, &grpc.StreamServerInfo{FullMethod: "/a/b"}, func(_ any, stream grpc.ServerStream) error {
		return stream.SendMsg(reply)
	})
	if !errors.Is(err, errSend) || sent != (Volume{}) {
		t.Errorf("%v, sent %+v", err, sent)
	}
}

// A correction that failed is logged, and one that was made is not.
func TestCorrectionsThatFailAreLogged(t *testing.T) {
	for _, closed := range []bool{false, true} {
		l := newLimiter(t)
		var log bytes.Buffer
		server := newServer(t, l, Logger(slog.New(slog.NewTextHandler(&log, nil))), Limit(newRule(t, l, "api", limit.PerHour(9)), Everyone,
			reserve(3), Settle(func(context.Context, string, Result) int64 { return 1 })))
		_, err := server.Unary(t.Context(), &pb.Empty{}, &grpc.UnaryServerInfo{FullMethod: "/a/b"}, func(context.Context, any) (any, error) {
			if closed {
				_ = l.Close()
			}
			return &pb.Empty{}, nil
		})
		if err != nil || strings.Contains(log.String(), "a charge could not be corrected") != closed {
			t.Errorf("closed %v: %v, logged %q", closed, err, log.String())
		}
	}
}

// legacy is a message as old generators of code made it.
type legacy struct {
	Text string `protobuf:"bytes,1,opt,name=text,proto3"`
}

func (m *legacy) Reset()       { *m = legacy{} }
func (*legacy) String() string { return "" }
func (*legacy) ProtoMessage()  {}

// The size of a message is that on the wire, whatever generated its code. What is no message has none.
func TestSizesOfMessages(t *testing.T) {
	for want, message := range map[int64]any{12: &legacy{Text: "0123456789"}, 8: &pb.SimpleRequest{Payload: &pb.Payload{Body: make([]byte, 4)}}, 0: "text"} {
		if got := size(message); got != want {
			t.Errorf("%T: %d bytes, want %d", message, got, want)
		}
	}
}
