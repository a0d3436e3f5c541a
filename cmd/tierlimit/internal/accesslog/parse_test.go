package accesslog

import (
	"strings"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	at := time.Date(2024, 2, 29, 23, 59, 58, 0, time.UTC)
	const stamp = `[29/Feb/2024:23:59:58 +0000]`
	tests := []struct {
		name string
		line string
		want Request
	}{
		{
			"common",
			`example.org - frank ` + stamp + ` "GET /a.gif HTTP/1.0" 200 2326`,
			Request{at, "example.org", "GET", "/a.gif", 200, 2326, "frank", 0},
		},
		{
			"combined",
			`10.0.0.1 - - ` + stamp + ` "POST /a?b=c HTTP/1.1" 404 12 "http://example.org/" "Mozilla/5.0 (X11; \"quoted\")"`,
			Request{at, "10.0.0.1", "POST", "/a?b=c", 404, 12, "", 0},
		},
		{
			"fields behind the agent",
			`10.0.0.1 - - ` + stamp + ` "GET / HTTP/2.0" 200 1 "-" "-" "10.9.8.7" 0.003`,
			Request{at, "10.0.0.1", "GET", "/", 200, 1, "", 0},
		},
		{
			"IPv6",
			`2001:db8::1 - - ` + stamp + ` "GET / HTTP/1.1" 200 1`,
			Request{at, "2001:db8::1", "GET", "/", 200, 1, "", 0},
		},
		{
			"no byte count",
			`h - - ` + stamp + ` "HEAD / HTTP/1.1" 304 -`,
			Request{at, "h", "HEAD", "/", 304, 0, "", 0},
		},
		{
			"no status",
			`h - - ` + stamp + ` "HEAD / HTTP/1.1" - 0`,
			Request{at, "h", "HEAD", "/", 0, 0, "", 0},
		},
		{
			"time-out",
			`h - - ` + stamp + ` "-" 408 0`,
			Request{at, "h", "", "", 408, 0, "", 0},
		},
		{
			"empty request",
			`h - - ` + stamp + ` "" 400 0 "-" "-"`,
			Request{at, "h", "", "", 400, 0, "", 0},
		},
		{
			"no protocol",
			`h - - ` + stamp + ` "GET /old" 200 5`,
			Request{at, "h", "GET", "/old", 200, 5, "", 0},
		},
		{
			"only a path",
			`h - - ` + stamp + ` "/old file" 400 5`,
			Request{at, "h", "", "/old file", 400, 5, "", 0},
		},
		{
			"only a method",
			`h - - ` + stamp + ` "GET" 400 5`,
			Request{at, "h", "GET", "", 400, 5, "", 0},
		},
		{
			"method and protocol",
			`h - - ` + stamp + ` "GET HTTP/1.0" 400 5`,
			Request{at, "h", "GET", "", 400, 5, "", 0},
		},
		{
			"spaces in the path",
			`h - - ` + stamp + ` "GET  /a b  c  HTTP/1.0" 404 -`,
			Request{at, "h", "GET", "/a b  c", 404, 0, "", 0},
		},
		{
			"something stuck to the protocol",
			`h - - ` + stamp + ` "GET /a HTTP/1.0From:  <me@example.org>" 404 -`,
			Request{at, "h", "GET", "/a", 404, 0, "", 0},
		},
		{
			"TLS sent to a plain port",
			`h - - ` + stamp + ` "\x16\x03\x01" 400 226 "-" "-"`,
			Request{at, "h", `\x16\x03\x01`, "", 400, 226, "", 0},
		},
		{
			"escaped quotes",
			`h - - ` + stamp + ` "GET /a\"b\\ HTTP/1.1" 404 7 "\"" "\\"`,
			Request{at, "h", "GET", `/a\"b\\`, 404, 7, "", 0},
		},
		{
			"escaped quote made to look like the end",
			`h - - ` + stamp + ` "GET /a\" 200 5 HTTP/1.1" 404 7`,
			Request{at, "h", "GET", `/a\" 200 5`, 404, 7, "", 0},
		},
		{
			"escaped time and request in the agent",
			`h - - ` + stamp + ` "GET / HTTP/1.1" 404 7 "-" "[01/Jan/2000:00:00:00 +0000] \"GET /b HTTP/1.0\" 200 9"`,
			Request{at, "h", "GET", "/", 404, 7, "", 0},
		},
		{
			"quotes not escaped",
			`h - - ` + stamp + ` "GET /a?"b" c" HTTP/1.0" 404 -`,
			Request{at, "h", "GET", `/a?"b" c"`, 404, 0, "", 0},
		},
		{
			"backslash not escaped",
			`h - - ` + stamp + ` "GET /dir\" 404 - "-" "-"`,
			Request{at, "h", "GET", `/dir\`, 404, 0, "", 0},
		},
		{
			"invalid UTF-8",
			"h\xff - - " + stamp + " \"GET /\xfe\x80 HTTP/1.0\" 200 1",
			Request{at, "h\xff", "GET", "/\xfe\x80", 200, 1, "", 0},
		},
		{
			"user with spaces and brackets",
			`10.0.0.1 - a [b] c ` + stamp + ` "GET / HTTP/1.0" 401 1`,
			Request{at, "10.0.0.1", "GET", "/", 401, 1, "a [b] c", 0},
		},
		{
			"empty user",
			`10.0.0.1 -  ` + stamp + ` "GET / HTTP/1.0" 401 1`,
			Request{at, "10.0.0.1", "GET", "/", 401, 1, "", 0},
		},
		{
			"virtual host in front",
			`www.example.org:443 10.0.0.1 - - ` + stamp + ` "GET / HTTP/1.0" 200 1 "-" "-"`,
			Request{at, "10.0.0.1", "GET", "/", 200, 1, "", 0},
		},
		{
			"host with a port",
			`10.0.0.1:5000 - - ` + stamp + ` "GET / HTTP/1.0" 200 1`,
			Request{at, "10.0.0.1", "GET", "/", 200, 1, "", 0},
		},
		{
			"large body",
			`h - - ` + stamp + ` "GET / HTTP/1.0" 200 123456789012345678`,
			Request{at, "h", "GET", "/", 200, 123456789012345678, "", 0},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, fault := parse([]byte(test.line))
			if fault.what != "" {
				t.Fatalf("bad line: %v", fault)
			}
			if got != test.want {
				t.Errorf("got  %+v\nwant %+v", got, test.want)
			}
		})
	}
}

func TestParseNamesWhatIsWrong(t *testing.T) {
	tests := []struct{ line, cause string }{
		{`hello`, noTime},
		{`h - - "GET / HTTP/1.0" 200 1`, noTime},
		{`h - - 01/Aug/1995:06:00:00 +0000] "GET / HTTP/1.0" 200 1`, noTime},
		{`h - - [01/Aug/1995:06:00:00 +0000] GET / HTTP/1.0 200 1`, noTime},
		{`[01/Aug/1995:06:00:00 +0000] "GET / HTTP/1.0" 200 1`, noFields + `: ""`},
		{`h - [01/Aug/1995:06:00:00 +0000] "GET / HTTP/1.0" 200 1`, noFields + `: "h - "`},
		{` - - [01/Aug/1995:06:00:00 +0000] "GET / HTTP/1.0" 200 1`, noFields + `: " - - "`},
		{`h - -[01/Aug/1995:06:00:00 +0000] "GET / HTTP/1.0" 200 1`, noFields + `: "h - -"`},
		{`h:80  - - [01/Aug/1995:06:00:00 +0000] "GET / HTTP/1.0" 200 1`, noFields + `: "h:80  - - "`},
		{`h - - [1995-08-01T06:00:00+0000] "GET / HTTP/1.0" 200 1`, badTime + `: "1995-08-01T06:00:00+0000"`},
		{`h - - [31/Feb/1995:06:00:00 +0000] "GET / HTTP/1.0" 200 1`, badDate + `: "31/Feb/1995:06:00:00 +0000"`},
		{`h - - [31/Dec/9999:06:00:00 +0000] "GET / HTTP/1.0" 200 1`, tooLate + `: "31/Dec/9999:06:00:00 +0000"`},
		{`h - - [01/Aug/1995:06:00:00 +0000] "GET / HT`, noClosing},
		{`h - - [01/Aug/1995:06:00:00 +0000] "GET / HTTP/1.0"`, badStatus + `: ""`},
		{`h - - [01/Aug/1995:06:00:00 +0000] "GET / HTTP/1.0" 2000 1`, badStatus + `: "2000"`},
		{`h - - [01/Aug/1995:06:00:00 +0000] "GET / HTTP/1.0" 20`, badStatus + `: "20"`},
		{`h - - [01/Aug/1995:06:00:00 +0000] "GET / HTTP/1.0" 200`, noBytes},
		{`h - - [01/Aug/1995:06:00:00 +0000] "GET / HTTP/1.0" 200 1k`, badBytes + `: "1k"`},
		{`h - - [01/Aug/1995:06:00:00 +0000] "GET / HTTP/1.0" 200 -1`, badBytes + `: "-1"`},
		{`h - - [01/Aug/1995:06:00:00 +0000] "GET / HTTP/1.0" 200 9999999999999999999`, badBytes + `: "9999999999999999999"`},
	}
	for _, test := range tests {
		if _, fault := parse([]byte(test.line)); fault.String() != test.cause {
			t.Errorf("%s\ngot  %v\nwant %v", test.line, fault, test.cause)
		}
	}
}

// Reading a line with many quotes must not take time that grows with the square of their number.
func TestParseManyQuotes(t *testing.T) {
	const start = `h - - [01/Aug/1995:06:00:00 +0000] "`
	for _, part := range []string{`"`, `" `, `" 200 `, `\" `, `" 200 x`, `" - `} {
		line := []byte(start + strings.Repeat(part, maxLine/len(part)))
		begin := time.Now()
		parse(line)
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("a line of %q took %v", part, took)
		}
	}
}
