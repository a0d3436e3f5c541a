package accesslog

import (
	"slices"
	"strings"
)

// versions are what Hypercorn writes in the place of a protocol.
var versions = []string{"1.0", "1.1", "2", "3", "ws"}

// splitRequest splits a request line into its method and its path. The path may contain spaces. The
// protocol begins at the last " HTTP/"; it may be missing, or followed directly by other text.
func splitRequest(s string) (method, path string) {
	if strings.Trim(s, "- ") == "" { // Istio and Amazon's classic load balancer write "- - -"
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
	} else if last := strings.LastIndexByte(path, ' '); last > 0 && slices.Contains(versions, path[last+1:]) {
		path = path[:last]
	}
	return method, strings.Trim(path, " ")
}
