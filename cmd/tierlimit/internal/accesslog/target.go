package accesslog

import "strings"

// splitRequest splits a request line into its method and its path. The path may
// hold spaces, and the protocol may be missing or have something stuck to it:
// it begins at the last " HTTP/".
func splitRequest(s string) (method, path string) {
	if s == "-" {
		return "", ""
	}
	s = strings.TrimLeft(s, " ")
	if strings.HasPrefix(s, "/") {
		s = " " + s // a path without a method
	}
	space := strings.IndexByte(s, ' ')
	if space < 0 {
		return s, ""
	}
	method, path = s[:space], s[space:]
	if protocol := strings.LastIndex(path, " HTTP/"); protocol >= 0 {
		path = path[:protocol]
	}
	return method, strings.Trim(path, " ")
}
