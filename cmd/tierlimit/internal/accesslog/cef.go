package accesslog

import (
	"bytes"
	"regexp"
	"strings"
	"time"
)

// cefName is the beginning of a value in CEF. Values may contain spaces, and a backslash before an equals sign.
var cefName = regexp.MustCompile(`(?:^| )(\w+)=`)

// parseCEF reads ArcSight's Common Event Format, in which firewalls and gateways write requests. Times without a zone
// are taken to be UTC:
//
//	CEF:0|vendor|product|version|ID|name|severity|rt=1136214245123 src=client requestMethod=METHOD request=url …
func parseCEF(line []byte) (Request, bool) {
	_, text, ok := bytes.Cut(line, []byte("CEF:"))
	if !ok {
		return Request{}, false
	}
	for range 7 {
		end := unescaped(text, '|')
		if end < 0 {
			return Request{}, false
		}
		text = text[end+1:]
	}
	var room [32]field
	of := fields(room[:0])
	names := cefName.FindAllSubmatchIndex(text, -1)
	for i, at := range names {
		end := len(text)
		if i+1 < len(names) {
			end = names[i+1][0]
		}
		value := bytes.ReplaceAll(text[at[1]:end], []byte(`\=`), []byte("="))
		of = append(of, field{name: text[at[2]:at[3]], value: value, plain: true})
	}
	r := Request{Host: bareAddress(of.text("src")), Method: of.text("requestMethod"), Path: strings.TrimSpace(withoutOrigin(of.text("request"))), User: of.text("suser"), Bytes: max(0, of.number("out"))}
	for _, name := range []string{"rt", "start", "end"} {
		stamp := of.text(name)
		if r.Time, ok = parseStamp(stamp); !ok {
			at, err := time.Parse("Jan 02 2006 15:04:05", stamp)
			r.Time, ok = at, err == nil && at.Unix() >= 0 && at.Unix() < lastSecond
		}
		if ok {
			break
		}
	}
	return r, ok && r.Host != "" && !strings.Contains(r.Method, " ")
}

// unescaped returns the index of the first character that no backslash precedes, or -1.
func unescaped(text []byte, character byte) int {
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case character:
			return i
		}
	}
	return -1
}
