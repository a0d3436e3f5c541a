package httplimit

import (
	"encoding/json"
	"net/http"
	"strconv"
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
	kind, title := typeQuotaExceeded, "Quota Exceeded"
	if d.Status == http.StatusServiceUnavailable {
		kind, title = typeReducedCapacity, "Temporary Reduced Capacity"
	}
	body := append(make([]byte, 0, 256), `{"type":"`...)
	body = append(body, kind...)
	body = appendProblem(append(body, `",`...), title, d.Status)
	body = append(body, `,"violated-policies":[`...)
	for i, name := range d.Violated {
		if i > 0 {
			body = append(body, ',')
		}
		quoted, _ := json.Marshal(name) // rules' names need no escaping, but a program may show others; cannot fail
		body = append(body, quoted...)
	}
	return append(body, "]}\n"...)
}

// sendDenial answers a denied request with a problem document.
func sendDenial(w http.ResponseWriter, _ *http.Request, d Denial) { send(w, d.Status, d.Problem()) }

// sendError answers a request about which the limiter could not decide. It does not reveal the error to
// the client.
func sendError(w http.ResponseWriter, status int) {
	body := appendProblem([]byte{'{'}, http.StatusText(status), status)
	send(w, status, append(body, "}\n"...))
}

func appendProblem(body []byte, title string, status int) []byte {
	body = append(body, `"title":"`...)
	body = append(body, title...)
	body = append(body, `","status":`...)
	return strconv.AppendInt(body, int64(status), 10)
}

func send(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h["Content-Type"] = []string{ProblemType}
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	w.WriteHeader(status)
	_, _ = w.Write(body) // fails only if the client has gone
}
