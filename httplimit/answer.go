package httplimit

import (
	"iter"
	"net/http"
	"strconv"
	"time"

	"github.com/tierlimit/tierlimit/internal/admission"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// Decided is the decision of one limit about a request. Handlers get it from [Decisions]. Programs
// that do not use net/http fill it from the results of tiered.Rule.Allow or
// tiered.Limiter.AllowAll, for [Fields] and [Denied].
type Decided struct {
	Rule     *tiered.Rule
	Key      string
	Decision limit.Decision
	// Unit and Partition are also sent to clients, see the options [Unit] and [PartitionKey]. An empty
	// one is left out. A unit is also left out if it is not a single word.
	Unit, Partition string
}

// Fields returns the header fields, by name and value, that tell a client what was decided about its
// request by the limits that apply to it. A middleware sets the same fields by itself; Fields is for
// programs without net/http, such as those on fasthttp. The style selects the fields. For a denied
// request, Retry-After and Cache-Control are added. Names are in the canonical form of net/http, and
// each occurs once. Rules on a dry run are left out.
func Fields(style HeaderStyle, of ...Decided) iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		var space [maxFields]field
		for _, f := range appendFields(space[:0], style, of) {
			if !yield(f.name, f.value) {
				return
			}
		}
	}
}

// Denied reports whether a request was denied, and returns what to send to its client. Limits that were
// decided together deny the request if any of them does. The header fields of the response are those of
// [Fields].
func Denied(of ...Decided) (denial Denial, denied bool) {
	if !anyDenied(of) {
		return Denial{}, false
	}
	// The handler may keep the lists, so they are copies.
	denial = Denial{Status: http.StatusTooManyRequests, Decisions: make([]limit.Decision, len(of))}
	for i := range of {
		d := &of[i]
		denial.Decisions[i] = d.Decision
		if d.Rule == nil || !d.Decision.Denied() {
			continue
		}
		denial.Violated = append(denial.Violated, d.Rule.Name())
		if admission.ByOutage(d.Rule, &d.Decision) {
			denial.Status = http.StatusServiceUnavailable
		}
	}
	return denial, true
}

func anyDenied(of []Decided) bool {
	for i := range of {
		if !of[i].Decision.Allowed {
			return true
		}
	}
	return false
}

// field is a header field.
type field struct{ name, value string }

// maxFields is the largest number of [Fields]: three of XHeaders and two of a denial.
const maxFields = 5

func appendFields(fields []field, style HeaderStyle, of []Decided) []field {
	switch style {
	case DraftHeaders:
		fields = appendDraft(fields, of)
	case XHeaders:
		fields = appendX(fields, of, time.Now())
	}
	if !anyDenied(of) {
		return fields
	}
	var wait time.Duration // until all limits that denied would grant the request
	for i := range of {
		if d := &of[i].Decision; d.Denied() {
			wait = max(wait, d.RetryAfter)
		}
	}
	return append(fields,
		field{fieldRetryAfter, strconv.FormatInt(max(1, seconds(wait)), 10)}, // of may lack the denying limits
		field{fieldCacheControl, noStore})                                    // required by RFC 6585 for status 429
}

// setFields sets fields in a response's header. The draft's fields are lists, which may have several
// lines, so they are added to lines that an outer middleware has set. All other fields are replaced.
func setFields(h http.Header, fields []field) {
	values := make([]string, len(fields)) // one allocation for all values
	for i, f := range fields {
		values[i] = f.value
		if (f.name == fieldPolicy || f.name == fieldLimit) && h[f.name] != nil {
			h.Add(f.name, f.value)
			continue
		}
		h[f.name] = values[i : i+1 : i+1]
	}
}
