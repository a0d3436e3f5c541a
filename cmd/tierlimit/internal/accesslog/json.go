package accesslog

import (
	"bytes"
	"encoding/json"
	"strings"
)

// scanObject appends the fields of a JSON object, which must be valid. Decoding the object into a map
// would take several times as long.
func scanObject(to fields, object []byte) fields {
	for rest := object[1:]; ; {
		rest = bytes.TrimLeft(rest, " \t\r\n,")
		if rest[0] == '}' {
			return to
		}
		end := valueEnd(rest)
		name := rest[1 : end-1]
		if bytes.IndexByte(name, '\\') >= 0 {
			name = []byte(unquote(rest[:end]))
		}
		rest = bytes.TrimLeft(rest[end:], " \t\r\n:")
		end = valueEnd(rest)
		to = append(to, field{name: name, value: rest[:end]})
		rest = rest[end:]
	}
}

// valueEnd returns the index at which a value of valid JSON ends.
func valueEnd(b []byte) int {
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			for i++; b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			depth++
			continue
		case '}', ']':
			depth--
		default:
			if depth > 0 || i+1 < len(b) && strings.IndexByte(" \t\r\n,:}]", b[i+1]) < 0 {
				continue
			}
		}
		if depth == 0 {
			return i + 1
		}
	}
	return len(b)
}

// unquote returns the content of a valid JSON string.
func unquote(b []byte) string {
	inner := b[1 : len(b)-1]
	for _, c := range inner {
		if c == '\\' || c >= 0x80 {
			var s string
			_ = json.Unmarshal(b, &s) // cannot fail: b is valid
			return s
		}
	}
	return string(inner)
}
