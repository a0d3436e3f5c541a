package accesslog

import (
	"strconv"
	"strings"
	"testing"
	"time"
)

// A line without a time has that with which it was collected, in front of it or around it.
func TestLinesWithoutATime(t *testing.T) {
	at := time.Date(2026, 11, 22, 12, 0, 0, 500_000_000, time.UTC)
	const stamp = "2026-11-22T12:00:00.5Z "
	get := Request{Time: at, Host: "10.0.0.1", Method: "GET", Path: "/a?b", Status: 200}
	with := func(change func(*Request)) Request {
		r := get
		change(&r)
		return r
	}
	named := with(func(r *Request) { r.Status = 0 })
	for line, want := range map[string]Request{
		`INFO:     10.0.0.1:4711 - "GET /a?b HTTP/1.1" 200 OK`:                             get,
		`INFO:     2001:db8::1:4711 - "GET /a?b HTTP/1.1" 200 OK`:                          with(func(r *Request) { r.Host = "2001:db8::1" }),
		"\x1b[32mINFO\x1b[0m:     10.0.0.1:0 - \"GET /a?b HTTP/1.1\" 200":                  get,
		`INFO:     10.0.0.1:4711 - "GET /a" 200 HTTP/1.1" 404 Not Found`:                   with(func(r *Request) { r.Path, r.Status = `/a" 200`, 404 }),
		`10.0.0.1 - "GET /a?b HTTP/1.1" 200`:                                               get,
		`10.0.0.1 "GET /a?b HTTP/1.1" 200 7 "-" "x" 404 9" 0.000123`:                       with(func(r *Request) { r.Bytes = 7 }),
		`10.0.0.1 "GET /a?b HTTP/1.1" 200 7 "-" "curl/8" 0.000123`:                         with(func(r *Request) { r.Bytes = 7 }),
		`10.0.0.1 - GET /a?b HTTP/1.1 200 - - 1.234 ms`:                                    get,
		`::1 bob GET /a?b HTTP/1.1 200 7 - 1.234 ms`:                                       with(func(r *Request) { r.Host, r.User, r.Bytes = "::1", "bob", 7 }),
		`10.0.0.1 - GET /a?b HTTP/1.1 - - - - ms`:                                          named,
		`12:00:00 | 200 |   1.2ms |        10.0.0.1 | GET     | /a?b       | -`:            get,
		"12:00:00 |\x1b[92m 200 \x1b[0m|   1.2ms |  ::1 |\x1b[96m GET \x1b[0m| /a | b | c": with(func(r *Request) { r.Host, r.Path = "::1", "/a | b" }),
		`level=info method=GET path=/a?b remote_ip=10.0.0.1`:                               named,
		`{"method":"GET","path":"/a?b","ip":"10.0.0.1"}`:                                   named,
		`I1122 12:00:00.123456   12 httplog.go:131] "HTTP" URI="/a?b" srcIP="10.0.0.1:52"`: with(func(r *Request) { r.Method, r.Status = "", 0 }),
	} {
		quoted := strings.ReplaceAll(strconv.Quote(line), `\x1b`, `\u001b`)
		for name, log := range map[string]string{
			"docker logs -t":         stamp + line,
			"docker compose logs -t": "web-1  | " + stamp + line,
			"Kubernetes CRI":         stamp + "stdout F " + line,
			"journalctl":             "2026-11-22T13:00:00.5+0100 web1 app[8]: " + line,
			"Docker's files":         `{"log":` + quoted + `,"stream":"stdout","time":"2026-11-22T12:00:00.5Z"}`,
			"journald's export":      `{"__REALTIME_TIMESTAMP":"1795348800500000","MESSAGE":` + quoted + `}`,
			"Loki":                   `{"labels":{"app":"x"},"line":` + quoted + `,"timestamp":"2026-11-22T12:00:00.5Z"}`,
			"Filebeat":               `{"@timestamp":"2026-11-22T12:00:00.5Z","host":{"name":"web1"},"message":` + quoted + `}`,
			"Grafana's CSV":          "Time,Line\n2026-11-22T12:00:00.5Z,\"" + strings.ReplaceAll(line, `"`, `""`) + `"`,
		} {
			if (name == "Loki" || name == "Filebeat") && (strings.HasSuffix(line, "ms") || strings.Contains(line, " | ")) {
				continue // too much like any message
			}
			read, requests, err := readAll(t, strings.NewReader(log))
			if err != nil || len(requests) != 1 || requests[0] != want {
				t.Errorf("%s: %s:\ngot  %+v, %v, %v\nwant %+v", name, line, requests, read.FirstBad(), err, want)
			}
		}
		if strings.HasPrefix(line, "{") {
			continue // is a test of noJSONTime elsewhere
		}
		if read, requests, _ := readAll(t, strings.NewReader(line)); len(requests) != 0 || read.FirstBad()[0].Cause != noStamp {
			t.Errorf("%s: %+v, %v", line, requests, read.FirstBad())
		}
	}
}

// A logger puts the time in brackets, or the server's format begins with it.
func TestTimesInFrontOfAClient(t *testing.T) {
	want := Request{Time: time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC), Host: "10.0.0.1", Method: "GET", Path: "/a", Status: 200}
	for name, line := range map[string]string{
		"Actix":                      `[2026-11-22T12:00:00Z INFO  actix_web::middleware::logger] 10.0.0.1 "GET /a HTTP/1.1" 200 0 "-" "curl/8" 0.000123`,
		"Granian":                    `[2026-11-22 13:00:00 +0100] 10.0.0.1 - "GET /a HTTP/1.1" 200 1.234`,
		"nginx with $time_iso8601":   `2026-11-22T13:00:00+01:00 10.0.0.1 "GET /a HTTP/1.1" 200 0`,
		"the same with a port":       `2026-11-22T13:00:00+01:00 10.0.0.1:4711 "GET /a HTTP/1.1" 200 0`,
		"nginx with $time_local":     `22/Nov/2026:13:00:00 +0100 10.0.0.1 "GET /a HTTP/1.1" 200`,
		"nginx with $msec":           `1795348800.123 10.0.0.1 "GET /a HTTP/1.1" 200 0.003`,
		"seconds without quotes":     `1795348800 10.0.0.1 GET /a 200`,
		"the same without quotes":    `[22/Nov/2026:13:00:00 +0100] 10.0.0.1 GET /a HTTP/1.1 200`,
		"morgan with :date[web]":     `Sun, 22 Nov 2026 12:00:00 GMT 10.0.0.1 GET /a 200`,
		"a time of C":                `Sun Nov 22 12:00:00 2026 10.0.0.1 GET /a 200`,
		"morgan with :date[iso]":     `2026-11-22T12:00:00.123Z 10.0.0.1 GET /a 200 - - 1.234 ms`,
		"uvicorn, the time in front": `2026-11-22 12:00:00,123 - INFO - 10.0.0.1:4711 - "GET /a HTTP/1.1" 200`,
	} {
		_, requests, err := readAll(t, strings.NewReader(line))
		if err != nil || len(requests) != 1 {
			t.Errorf("%s: %v, %+v", name, err, requests)
			continue
		}
		if requests[0].Time = requests[0].Time.Truncate(time.Second); requests[0] != want {
			t.Errorf("%s: %+v, want %+v", name, requests[0], want)
		}
	}
}

// The cause says what a line lacks, and a line inside an object does not replace the object's own client.
func TestLinesWithoutAClient(t *testing.T) {
	for line, cause := range map[string]string{
		`4711 10.0.0.1 "GET /a HTTP/1.1" 200`: noStamp, // the number is none of a time
		"GET /a 200 7 - 1.234 ms":             noClient,
		"2026-11-22T12:00:00.5Z \x1b[0mGET /a \x1b[32m200\x1b[0m 1.234 ms - 7\x1b[0m": noClient,
		"GET /a - - - - ms": noClient,
		`INFO:     10.0.0.1:4711 - "WebSocket /ws" [accepted]`: noTime,
		`INFO:     server:4711 - "GET / HTTP/1.1" 200 OK`:      noTime,
		"it took 12 ms - 7": noTime,
		`2026-11-22T12:00:00.5Z connection from 10.0.0.1 "lost" 500 times`:                                noTime,
		`{"log":"GET /a 200 7 - 1.234 ms","stream":"stdout","time":"2026-11-22T12:00:00.5Z"}`:             noClient,
		`{"log":"{\"level\":\"info\",\"host\":\"x\"}","stream":"stdout","time":"2026-11-22T12:00:00.5Z"}`: noRequest,
	} {
		read, requests, err := readAll(t, strings.NewReader(line))
		if err != nil || len(requests) != 0 || read.FirstBad()[0].Cause != cause {
			t.Errorf("%s: %v, %+v, %v", line, err, requests, read.FirstBad())
		}
	}
	for _, own := range []string{
		`{"time":1795348800,"ip":"10.0.0.1","message":"asked ip=10.9.9.9 path=/b"}`,
		`{"time":1795348800,"host":"10.0.0.1","message":"blocked 10.9.9.9 \"GET /b\" 403 times"}`,
	} {
		if _, requests, err := readAll(t, strings.NewReader(own)); err != nil || len(requests) != 1 || requests[0].Host != "10.0.0.1" {
			t.Errorf("%s: %v, %+v", own, err, requests)
		}
	}
}
