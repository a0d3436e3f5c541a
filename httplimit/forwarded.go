package httplimit

import (
	"net/netip"
	"strings"

	"github.com/tierlimit/tierlimit/internal/keys"
)

// cutLastElement cuts a Forwarded header at its last comma that is not inside a quoted string. It
// searches from the right, where trusted proxies append, so that a quotation mark that a client
// leaves open cannot hide what was added after it.
func cutLastElement(line string) (before, last string, more bool) {
	quoted := false
	for i := len(line) - 1; i >= 0; i-- {
		switch line[i] {
		case '"':
			if !escaped(line, i) {
				quoted = !quoted
			}
		case ',':
			if !quoted {
				return line[:i], line[i+1:], true
			}
		}
	}
	return "", line, false
}

// escaped reports whether an odd number of backslashes stands before s[i].
func escaped(s string, i int) bool {
	before := strings.TrimRight(s[:i], `\`)
	return (i-len(before))%2 == 1
}

// forwardedFor returns the value of the parameter "for" of one element of a Forwarded header (RFC 7239,
// section 4). It returns "", which is no address, if the element has no such parameter, has more than one, or is
// malformed anywhere.
func forwardedFor(element string) (node string) {
	found := false
	for rest := element; ; {
		rest = strings.TrimLeft(rest, " \t;") // pairs may be empty
		if rest == "" {
			return node
		}
		name, after, _ := strings.Cut(rest, "=")
		if !isToken(name) {
			return ""
		}
		value, after, ok := cutValue(after)
		if !ok {
			return ""
		}
		if strings.EqualFold(name, "for") {
			if found {
				return ""
			}
			node, found = value, true
		}
		rest = strings.TrimLeft(after, " \t")
		if rest != "" && rest[0] != ';' {
			return ""
		}
	}
}

// cutValue cuts a token or a quoted string off the beginning of s.
func cutValue(s string) (value, after string, ok bool) {
	if !strings.HasPrefix(s, `"`) {
		end := strings.IndexFunc(s, func(r rune) bool { return !isTokenRune(r) })
		if end < 0 {
			end = len(s)
		}
		return s[:end], s[end:], end > 0
	}
	if end := strings.IndexAny(s[1:], `"\`); end >= 0 && s[1+end] == '"' {
		return s[1 : 1+end], s[2+end:], true // nothing is escaped: the usual case
	}
	var unescaped strings.Builder
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '"':
			return unescaped.String(), s[i+1:], true
		case '\\':
			if i++; i == len(s) {
				return "", "", false
			}
		}
		unescaped.WriteByte(s[i])
	}
	return "", "", false
}

// parseNode reads an address as proxies write it: with or without a port, IPv6 with
// or without brackets.
func parseNode(s string) (netip.Addr, bool) {
	host, bracketed := s, false
	if strings.HasPrefix(s, "[") {
		var port string
		host, port, bracketed = strings.Cut(s[1:], "]")
		if !bracketed || port != "" && (port[0] != ':' || !isPort(port[1:])) {
			return netip.Addr{}, false
		}
	} else if before, port, _ := strings.Cut(s, ":"); strings.Contains(before, ".") && len(before) < len(s) {
		if !isPort(port) {
			return netip.Addr{}, false
		}
		host = before
	}
	addr, err := netip.ParseAddr(host)
	if err != nil || bracketed && !addr.Is6() {
		return netip.Addr{}, false
	}
	return keys.Canonical(addr), true
}

// isPort reports whether s is a port number, or an obfuscated port (RFC 7239, section 6.2).
func isPort(s string) bool {
	if strings.HasPrefix(s, "_") {
		return isToken(s)
	}
	return s != "" && len(s) <= 5 && strings.Trim(s, "0123456789") == ""
}

func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return !isTokenRune(r) })
}

// isTokenRune reports whether r may stand in a token (RFC 9110, section 5.6.2).
func isTokenRune(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' ||
		strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}
