package accesslog

import "time"

// Request is one line of the log. Its strings hold the bytes as logged: text that the server escaped
// (\" or \x16) stays escaped, and the strings need not be valid UTF-8. They share memory with one
// another, so clone a string that is kept for long.
type Request struct {
	// Time is when the server logged the request, in UTC.
	Time time.Time
	// Host is the client: an address, or its name if the server looked the name up. For a plain line,
	// it is the key.
	Host string
	// Method and Path are empty if the server logged no request, for example for a connection that
	// timed out.
	Method string
	Path   string
	// Status is 0 if the log has "-".
	Status int
	// Bytes is the size of the response's body, or 0 if the log has "-".
	Bytes int64
	// User is the authenticated user, or "" if the log has "-".
	User string
	// Cost is the number of units that the request took according to the log, or 0 if the log does not
	// say.
	Cost int64
}
