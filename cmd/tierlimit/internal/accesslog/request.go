package accesslog

import "time"

// Request is one line of the log. Its strings hold the bytes as logged: what
// the server escaped (\" or \x16) stays escaped, and they need not be UTF-8.
// They share memory with one another; clone what is kept for long.
type Request struct {
	// Time is when the server logged the request, in UTC.
	Time time.Time
	// Host is the client: an address, or its name where the server looked it up; the key of a
	// plain line.
	Host string
	// Method and Path are empty where the server logged no request, as it does
	// for connections that time out.
	Method string
	Path   string
	// Status is 0 where the log has "-".
	Status int
	// Bytes is the size of the response's body, 0 where the log has "-".
	Bytes int64
	// User is who the request was made as, empty where the log has "-".
	User string
	// Cost is how many units the log says that the request took, 0 where it says nothing.
	Cost int64
}
