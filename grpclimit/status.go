package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/tierlimit/tierlimit/internal/admission"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// deniedStatus returns the status of a denied call.
func deniedStatus(requests []tiered.Request, decisions []limit.Decision) error {
	var wait time.Duration // until all limits that denied would grant the call
	quota, byOutage := &errdetails.QuotaFailure{}, false
	for i := range decisions {
		d, rule := &decisions[i], requests[i].Rule
		if !d.Denied() {
			continue
		}
		wait = max(wait, d.RetryAfter)
		byOutage = byOutage || admission.ByOutage(rule, d)
		quota.Violations = append(quota.Violations, violation(rule))
	}
	if byOutage {
		return withDetails(codes.Unavailable, "calls cannot be counted at the moment", retryInfo(wait))
	}
	return withDetails(codes.ResourceExhausted, "quota exceeded", retryInfo(wait), quota)
}

// violation names a rule that denied a call. It leaves out the key, which may be a secret.
func violation(rule *tiered.Rule) *errdetails.QuotaFailure_Violation {
	description := fmt.Sprintf("the quota of %d per %s is used up", rule.Limit().Quota(), rule.Limit().WindowString())
	if rule.Limit().IsConcurrent() {
		description = fmt.Sprintf("the concurrency limit of %d is reached", rule.Limit().Quota())
	}
	return &errdetails.QuotaFailure_Violation{Subject: rule.Name(), Description: description}
}

// answerError is the default for [OnError]. It does not reveal the error to the client.
func (s *Server) answerError(_ context.Context, method string, err error) error {
	if admission.IsMistake(err) {
		s.log.Error("a limit could not be decided; calls end with INTERNAL", "method", method, "error", err)
	}
	return errorStatus(err, "")
}

// errorStatus returns the status of a call about which the limiter returned an error. reason is
// appended to the status's message; it is "" if the caller must not learn the error.
func errorStatus(err error, reason string) error {
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	case admission.IsMistake(err):
		return status.Error(codes.Internal, "the call could not be counted"+reason)
	}
	return withDetails(codes.Unavailable, "calls cannot be counted at the moment"+reason, retryInfo(time.Second))
}

func retryInfo(after time.Duration) *errdetails.RetryInfo {
	return &errdetails.RetryInfo{RetryDelay: durationpb.New(after)}
}

func withDetails(code codes.Code, message string, details ...protoadapt.MessageV1) error {
	s := status.New(code, message)
	if detailed, err := s.WithDetails(details...); err == nil {
		s = detailed
	}
	return s.Err()
}
