package httplimit

import (
	"encoding/json"
	"net/http"
)

// The draft's problem types (sections 5.1 and 5.2), which it asks IANA to register.
const (
	typeQuotaExceeded   = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	typeReducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
)

// ProblemType is the media type of [Denial.Problem].
const ProblemType = "application/problem+json"

// Problem returns the problem document (RFC 9457) that is sent by default to clients whose requests
// were denied, with status d.Status and media type [ProblemType].
func (d Denial) Problem() []byte {
	p := problem{Type: typeQuotaExceeded, Title: "Quota Exceeded", Status: d.Status, Violated: append([]string{}, d.Violated...)}
	if d.Status == http.StatusServiceUnavailable {
		p.Type, p.Title = typeReducedCapacity, "Temporary Reduced Capacity"
	}
	return p.document()
}

// problem has the members of a problem document. An empty list of names is sent, and a nil one is left out.
type problem struct {
	Type     string   `json:"type,omitempty"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Violated []string `json:"violated-policies,omitzero"`
}

func (p problem) document() []byte {
	text, _ := json.Marshal(p) // fails for no value of this type
	return append(text, '\n')
}

// sendDenial answers a denied request with a problem document.
func sendDenial(w http.ResponseWriter, _ *http.Request, d Denial) { send(w, d.Status, d.Problem()) }

// sendError answers a request about which the limiter could not decide. It does not reveal the error to
// the client.
func sendError(w http.ResponseWriter, status int) {
	send(w, status, problem{Title: http.StatusText(status), Status: status}.document())
}

func send(w http.ResponseWriter, status int, body []byte) {
	w.Header()["Content-Type"] = []string{ProblemType} // no Content-Length: an outer middleware may compress the body
	w.WriteHeader(status)
	_, _ = w.Write(body) // fails only if the client has gone
}
