package httplimit

import (
	"encoding/base64"
	"math/bits"
	"strconv"
	"time"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// The fields' names in the canonical form of net/http.
const (
	fieldPolicy       = "Ratelimit-Policy"
	fieldLimit        = "Ratelimit"
	fieldXLimit       = "X-Ratelimit-Limit"
	fieldXRemaining   = "X-Ratelimit-Remaining"
	fieldXReset       = "X-Ratelimit-Reset"
	fieldRetryAfter   = "Retry-After"
	fieldCacheControl = "Cache-Control"
)

// noStore is the Cache-Control of a response that must not be cached.
const noStore = "no-store"

// maxPartition is the number of bytes of a partition key that are sent to clients at most.
const maxPartition = 128

// appendDraft appends RateLimit-Policy and RateLimit, unless there is nothing to report.
func appendDraft(fields []field, of []Decided) []field {
	var space [512]byte
	policy, left := space[:0:256], space[256:256]
	for i := range of {
		d := &of[i]
		if d.Decision.DryRun || d.Rule == nil {
			continue // clients would slow down for a dry run
		}
		if len(policy) > 0 {
			policy = append(policy, ", "...)
		}
		policy = appendPartition(appendPolicy(policy, d.Rule, d.Unit), d.Partition)
		if d.Decision.HeldBack {
			continue // what is left was not asked for, or is not known
		}
		if len(left) > 0 {
			left = append(left, ", "...)
		}
		left = appendPartition(appendLeft(left, d.Rule, &d.Decision), d.Partition)
	}
	if len(policy) == 0 {
		return fields
	}
	fields = append(fields, field{fieldPolicy, string(policy)})
	if len(left) > 0 { // a field without members is not sent (RFC 9651, section 3.1)
		fields = append(fields, field{fieldLimit, string(left)})
	}
	return fields
}

// appendPolicy appends an item of RateLimit-Policy. The name of a rule has no character that a string
// of a structured field must escape. Quotas are below 2^40 and so within the range of a structured
// field's integers.
func appendPolicy(b []byte, rule *tiered.Rule, unit string) []byte {
	b = append(b, '"')
	b = append(b, rule.Name()...)
	b = append(b, `";q=`...)
	b = strconv.AppendInt(b, rule.Limit().Quota(), 10)
	concurrent := rule.Limit().IsConcurrent()
	if unit == "" && concurrent {
		unit = "concurrent-requests"
	}
	if isToken(unit) {
		b = append(b, `;qu="`...)
		b = append(b, unit...)
		b = append(b, '"')
	}
	if w := rule.Limit().Window(); w%time.Second == 0 && !concurrent {
		b = append(b, ";w="...)
		b = strconv.AppendInt(b, int64(w/time.Second), 10)
	}
	return b
}

// appendLeft appends an item of RateLimit.
func appendLeft(b []byte, rule *tiered.Rule, d *limit.Decision) []byte {
	b = append(b, '"')
	b = append(b, rule.Name()...)
	b = append(b, `";r=`...)
	b = strconv.AppendInt(b, d.Remaining, 10)
	if d.Allowed && rule.Limit().IsConcurrent() {
		return b // a concurrency limit's units stay free until they are acquired, and come back at any time
	}
	b = append(b, ";t="...)
	return strconv.AppendInt(b, effective(rule, d), 10)
}

// appendPartition appends the parameter pk, a byte sequence.
func appendPartition(b []byte, key string) []byte {
	if key == "" {
		return b
	}
	b = append(b, ";pk=:"...)
	b = base64.StdEncoding.AppendEncode(b, []byte(key[:min(len(key), maxPartition)]))
	return append(b, ':')
}

// effective returns t, the number of seconds in which the client should use at most the remaining
// units. After a denial, t is the time until the request would be allowed; otherwise it is the time
// until all units are free. Under GCRA with a small burst, the latter can be very short, although the
// remaining units take longer to come back at the limit's rate. A client that used r units every t
// seconds would then be far above the limit, so t is that longer time.
func effective(rule *tiered.Rule, d *limit.Decision) int64 {
	if !d.Allowed {
		return seconds(d.RetryAfter)
	}
	t := d.ResetAfter
	if d.Algorithm == limit.GCRA() {
		hi, lo := bits.Mul64(uint64(max(0, d.Remaining)), uint64(rule.Limit().Window()))
		if quota := uint64(rule.Limit().Quota()); hi < quota {
			even, _ := bits.Div64(hi, lo, quota)
			t = max(t, time.Duration(min(even, uint64(limit.MaxWindow))))
		}
	}
	return seconds(t)
}

// appendX appends the three fields for one limit: the limit that denies for the longest time, or, if
// none denies, the limit that is nearest to being used up.
func appendX(fields []field, of []Decided, now time.Time) []field {
	var worst *limit.Decision
	for i := range of {
		if d := &of[i].Decision; !d.DryRun && (worst == nil || nearer(d, worst)) {
			worst = d
		}
	}
	if worst == nil {
		return fields
	}
	wait := worst.ResetAfter
	if !worst.Allowed {
		wait = worst.RetryAfter
	}
	return append(fields,
		field{fieldXLimit, strconv.FormatInt(worst.Limit, 10)},
		field{fieldXRemaining, strconv.FormatInt(worst.Remaining, 10)},
		field{fieldXReset, strconv.FormatInt(now.Add(wait+time.Second-1).Unix(), 10)})
}

// nearer reports whether a denies for longer than b or, if both allow, has a smaller part of its limit left.
func nearer(a, b *limit.Decision) bool {
	switch {
	case a.Allowed != b.Allowed:
		return !a.Allowed
	case !a.Allowed:
		return a.RetryAfter > b.RetryAfter
	}
	return float64(a.Remaining)/float64(a.Limit) < float64(b.Remaining)/float64(b.Limit)
}

// seconds returns a wait in whole seconds, rounded up so that a client never waits too short a time.
func seconds(d time.Duration) int64 {
	return int64((d + time.Second - 1) / time.Second)
}
