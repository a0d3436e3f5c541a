package accesslog

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// KeyKind says what has a limit of its own.
type KeyKind string

// The kinds of keys.
const (
	KeyHost        KeyKind = "host"
	KeyPath        KeyKind = "path"
	KeyHostAndPath KeyKind = "host+path"
	KeyUser        KeyKind = "user"
)

// ParseKeyKind reads "host", "path", "host+path" or "user".
func ParseKeyKind(s string) (KeyKind, error) {
	switch k := KeyKind(s); k {
	case KeyHost, KeyPath, KeyHostAndPath, KeyUser:
		return k, nil
	}
	return "", fmt.Errorf("key %q: must be one of %s, %s, %s, %s", s, KeyHost, KeyPath, KeyHostAndPath, KeyUser)
}

// Of returns the request's key: the host, unless k says otherwise. A path is taken without its query. A
// key is never empty: a missing path or user is "-", as in the log.
func (k KeyKind) Of(r Request) string {
	switch k {
	case KeyPath:
		return pathKey(r.Path)
	case KeyHostAndPath:
		// The host ends at the first space. Only a JSON key can contain a space, and such a host is
		// quoted.
		host := r.Host
		if strings.ContainsAny(host, " \"") {
			host = strconv.Quote(host)
		}
		return host + " " + pathKey(r.Path)
	case KeyUser:
		return cmp.Or(r.User, "-")
	}
	return r.Host
}

// In reports whether a request states its key. Otherwise its key is "-", as for all such requests.
func (k KeyKind) In(r Request) bool {
	switch k {
	case KeyPath:
		return pathKey(r.Path) != "-"
	case KeyUser:
		return r.User != "" && r.User != "-"
	}
	return r.Host != "-"
}

func pathKey(path string) string {
	path, _, _ = strings.Cut(path, "?")
	if path == "" {
		return "-"
	}
	return path
}
