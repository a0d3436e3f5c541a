package accesslog

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"
)

func FuzzReader(f *testing.F) {
	f.Add([]byte(good + "\r\n\nbad\n" + good))
	f.Add([]byte(`2001:db8::1 - a [b] c [29/Feb/2024:23:59:58.5 -0130] "GET /a\" 200 5 HTTP/1.1" 404 - "\"" "x"`))
	f.Add([]byte(`v:80 h - - [01/Aug/1995:06:00:00 +0000] "-" 408 0` + "\n" + good + "\xff"))
	f.Add(zipped(f, good+"\n"+good))
	f.Add(zipped(f, good)[:30])
	f.Add([]byte("1795348800.5 k 3\n{\"time\":1795348800,\"key\":\"k\",\"cost\":2,\"path\":\" /x\"}\n2026-11-22T12:00:00Z k"))
	f.Add([]byte(`{"log":"1795348800 k\r\n","stream":"stdout","time":"2026-11-22T12:00:00Z"}`))
	f.Add([]byte(`[{"time":1795348800,"request":{"uri":"\u002f\\"},"a":[{"}":"]"}]}, {"time":` + "\n}"))
	f.Add([]byte("#Fields: date time c-ip cs-uri-stem\n2026-11-22 12:00:00 ::1 /\n#Fields:\n\n-"))
	f.Add([]byte(`time=1795348800 msg="a \"b\"" ip=::1 path= cost=3 x="`))
	f.Add([]byte("time;client;path\n1795348800;\"a;b\";/x\n1795348800;c;\"\n"))
	f.Add([]byte(`[2026-11-22T12:00:00Z] "GET / HTTP/2" 200 - via - "-" 1 2 3 4 "::1, x" "" "" "" "" c 1:2 3:4 [::1]:5 - x`))
	f.Add([]byte(`h2 2026-11-22T12:00:00Z lb [::1]:9 10.0.0.2:80 0 0 0 200 200 34 366 "GET https://x:443 HTTP/1.1" "x"`))
	f.Add([]byte(`x 10.0.0.1:9 [22/Nov/2026:12:00:00.5] a b/c 0/0/0/0/0 200 7 - - ---- 1/1/1/1/0 0/0 "GET / HTTP/1.1"`))
	f.Add([]byte(`x "::1, 10.0.0.9" 10.0.0.1 e.org - [22/Nov/2026:12:00:00 +0000] "GET / HTTP/1.1" 200 7` + "\n\x00\x00, - - - [2026-11-22 12:00:00 +0100 CET] \"\" 200 7"))
	f.Add([]byte("2026-11-22 12:00:00 +0100 CET 17 3\n" + `{"source_type":"x","message":"{\"ts\":0.5,\"date\":1795348800,\"ip\":\", a\"}"}`))
	f.Add([]byte("time:[22/Nov/2026:12:00:00 +0000]\thost:::1\treq:GET / HTTP/1.1\tcost:2\n2026-11-22 12:00:00,1 - a.b - I - ::1 - - [22/Nov/2026:12:00:00 UTC] \"\" 200 7"))
	f.Add([]byte(`{"short_message":"x","timestamp":1795348800,"_client_ip":"::1","result":{"a":[{}]}}` + "\n" + `{"records":[{"time":1795348800}]}`))
	f.Add([]byte("[pid: 8|app: 0|req: 1/1] ::1, x (b) {4 vars} [Sun Nov  1 12:00:00 2026] GET / => generated 7 bytes\n[I 261122 12:00:00 w] 200 GET / (b@::1) 1ms"))
	f.Add([]byte(`"::1" "b" "22/Nov/2026:12:00:00 +0000" "GET / HTTP/1.1" 200 7` + "\n" + `[22/Nov/2026:12:00:00 +0000] ::1 TLSv1.3 X "GET / HTTP/1.1" 7`))
	f.Add([]byte(`[22/Nov/2026:12:00:00 +0000] - 200 200 - GET https x "/a?b" [Client ::1] [Length 7] [Gzip 3.1] [Sent-to x] "curl/8" "-"`))
	f.Add([]byte("Started GET \"/\" for ::1 at 2026-11-22 12:00:00 UTC\nx 1795348800.5 7 ::1 TCP_MISS/200 7 GET http://x/ b HIER_DIRECT/::1 -"))
	f.Add([]byte(`o b [22/Nov/2026:12:00:00 +0000] ::1 u I REST.GET k "GET / HTTP/1.1" 404 X 7` + "\ntls 2.0 2026-11-22T12:00:00 l l [::1]:1 x 5 2 98 7"))
	f.Add([]byte(`CEF:0|a\|b|c|d|e|f|5|rt=1795348800500 src=[::1]:9 request=https://x.org/a?b\=c suser=a b out=7` + "\n12:00:00 | 200 | 1ms | ::1 | GET | /a | b"))
	f.Add([]byte("2026-11-22T12:00:00Z INFO: ::1:9 - \"GET / HTTP/1.1\" 200 OK\n" + `{"log":"::1 - GET /a HTTP/1.1 200 - - 1 ms","stream":"x","time":"2026-11-22T12:00:00Z"}`))
	f.Add([]byte("[2026-11-22 12:00:00 +0000] - (s.access)[INFO][::1:9]: GET http://x/a  200 7\nx:::1 - - [22/Nov/2026:12:00:00 +0000] a b \"GET / HTTP/1.1\" 200 7"))
	f.Add([]byte("2026-11-22T12:00:00Z Before request [GET /a, client=::1, user=b]\n::1, -, 11/22/26, 12:00:00, W, s, ::1, 1, 2, 7, 200, 0, GET, /a, -,\n1795348800\t::1\tGET\t/a"))
	f.Add([]byte("0 ``"))
	f.Fuzz(func(t *testing.T, data []byte) {
		log, err := NewReader(bytes.NewReader(data))
		if err != nil {
			return // only a gzip file or a file of another kind can fail here
		}
		read := 0
		for {
			var request Request
			request, err = log.Read()
			if err != nil {
				break
			}
			read++
			checkRequest(t, request)
		}
		if _, again := log.Read(); again == nil || again.Error() != err.Error() {
			t.Errorf("the error %v was followed by %v", err, again)
		}
		if log.Lines() != read+log.BadLines()+log.empty {
			t.Errorf("%d lines: %d good, %d bad, %d empty", log.Lines(), read, log.BadLines(), log.empty)
		}
		if len(log.FirstBad()) != min(log.BadLines(), maxFirstBad) {
			t.Errorf("kept %d of %d bad lines", len(log.FirstBad()), log.BadLines())
		}
		if bytes.HasPrefix(data, []byte{0x1f, 0x8b}) || log.Unit() == "object" {
			return
		}
		data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
		if !errors.Is(err, io.EOF) || log.Lines() != lineCount(data) {
			t.Errorf("%d lines of %d, then %v", log.Lines(), lineCount(data), err)
		}
	})
}

func lineCount(data []byte) int {
	n := bytes.Count(data, []byte("\n"))
	if len(data) > 0 && data[len(data)-1] != '\n' {
		n++
	}
	return n
}

func checkRequest(t *testing.T, r Request) {
	t.Helper()
	if r.Host == "" {
		t.Errorf("host %q", r.Host)
	}
	if strings.Contains(r.Method, " ") || strings.ContainsAny(r.Path, "\n") || strings.Trim(r.Path, " ") != r.Path {
		t.Errorf("method %q, path %q", r.Method, r.Path)
	}
	if r.Status < 0 || r.Status > 999 || r.Bytes < 0 || r.Time.Unix() < 0 {
		t.Errorf("%+v", r)
	}
	host, _, _ := strings.Cut(KeyHostAndPath.Of(r), " ")
	if quoted, err := strconv.QuotedPrefix(KeyHostAndPath.Of(r)); err == nil && quoted[0] == '"' { // not a host of backquotes
		host, _ = strconv.Unquote(quoted)
	}
	if host != r.Host || KeyPath.Of(r) == "" {
		t.Errorf("keys %q, %q", KeyHostAndPath.Of(r), KeyPath.Of(r))
	}
}
