package accesslog

import "strings"

// splitRequest splits a request line into its method and its path. The path may contain spaces. The
// protocol begins at the last " HTTP/"; it may be missing, or followed directly by other text.
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
