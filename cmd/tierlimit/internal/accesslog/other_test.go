package accesslog

import (
	"math"
	"strings"
	"testing"
	"time"
)

// Each line may have any format. The fields that a line states are read, and missing fields stay empty.
func TestOtherFormats(t *testing.T) {
	at := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for line, want := range map[string]Request{
		"2026-11-22T12:00:00Z alice":              {Time: at, Host: "alice"},
		"2026-11-22T13:00:00.25+01:00\talice\t30": {Time: at.Add(250 * time.Millisecond), Host: "alice", Cost: 30},
		"2026-11-22 12:00:00 alice":               {Time: at, Host: "alice"},
		"2026-11-22 13:00:00,250+01:00 alice 30":  {Time: at.Add(250 * time.Millisecond), Host: "alice", Cost: 30},
		"1795348800 alice":                        {Time: at, Host: "alice"},
		// A zone is not a key, as Ruby, PostgreSQL and Go write it.
		"2026-11-22 13:00:00 +0100 17":             {Time: at, Host: "17"},
		"2026-11-22 12:00:00 UTC 17 3":             {Time: at, Host: "17", Cost: 3},
		"2026-11-22 13:00:00.25+01 17":             {Time: at.Add(250 * time.Millisecond), Host: "17"},
		"2026-11-22 13:00:00.25 +0100 CET alice 3": {Time: at.Add(250 * time.Millisecond), Host: "alice", Cost: 3},
		"2026-11-22T12:00:00 UTC 17":               {Time: at, Host: "17"},
		"2026-11-22T12:00:00Z EU 3":                {Time: at, Host: "EU", Cost: 3},
		// The half of the day, Go's monotonic clock and GMT are a part of the time, too, and Go's package log writes slashes.
		"2026-11-22 01:00:00 PM 17":                                     {Time: at.Add(time.Hour), Host: "17"},
		"2026-11-22 12:00:00.5 AM alice 3":                              {Time: at.Add(-12*time.Hour + 500*time.Millisecond), Host: "alice", Cost: 3},
		"2026-11-22 12:00:00.25 +0000 UTC m=+0.012 17":                  {Time: at.Add(250 * time.Millisecond), Host: "17"},
		"2026-11-22 12:00:00 GMT 17":                                    {Time: at, Host: "17"},
		"2026/11/22 12:00:00 17":                                        {Time: at, Host: "17"},
		"2026/11/22 12:00:00.250000 alice 3":                            {Time: at.Add(250 * time.Millisecond), Host: "alice", Cost: 3},
		"22/Nov/2026:12:00:00 17":                                       {Time: at, Host: "17"},
		"22/Nov/2026:13:00:00 +0100 17":                                 {Time: at, Host: "17"},
		"22/Nov/2026:12:00:00 UTC 17":                                   {Time: at, Host: "17"},
		"Sun Nov 22 12:00:00 2026 17":                                   {Time: at, Host: "17"},
		"Sun, 22 Nov 2026 12:00:00 GMT 17":                              {Time: at, Host: "17"},
		"Sun, 22 Nov 2026 13:00:00 +0100 alice 3":                       {Time: at, Host: "alice", Cost: 3},
		"11/22/2026 1:00:00 PM +01:00 alice 3":                          {Time: at, Host: "alice", Cost: 3},
		"2026-11-22T12:00:00Z -":                                        {Time: at, Host: "-"},
		"2026-11-22T12:00:00Z 2001:db8:: 3":                             {Time: at, Host: "2001:db8::", Cost: 3},
		"2026-11-22T12:00:00Z 10.0.0.1:":                                {Time: at, Host: "10.0.0.1:"}, // of awk, perhaps
		"2026-11-22 12:00:00 EU,3":                                      {Time: at, Host: "EU,3"},
		"2026-11-22T12:00:00Z EST 3":                                    {Time: at, Host: "EST", Cost: 3},
		"0.5 k":                                                         {Time: time.Unix(0, 5e8).UTC(), Host: "k"}, // of a test, perhaps
		"1795348800.000123 k 2":                                         {Time: at.Add(123 * time.Microsecond), Host: "k", Cost: 2},
		`{"time":"2026-11-22T12:00:00Z","host":"h"}`:                    {Time: at, Host: "h"},
		`{"ts":1795348800.5,"key":"k","cost":7}`:                        {Time: at.Add(500 * time.Millisecond), Host: "k", Cost: 7},
		`{"timestamp":"1795348800","user_id":17}`:                       {Time: at, Host: "-", User: "17"},
		`{"time":1795348800,"status":"x","bytes":null}`:                 {Time: at, Host: "-"},
		`{"time":1795348800,"status":200.0,"bytes":1500.00,"cost":2.0}`: {Time: at, Host: "-", Status: 200, Bytes: 1500, Cost: 2},
		"\t" + ` {"time":1795348800,"key":"k"}`:                         {Time: at, Host: "k"},
		`{"time":1795348800,"key":"user 17"}`:                           {Time: at, Host: "user 17"},
		`{"time":1795348800250,"host":"h"}`:                             {Time: at.Add(250 * time.Millisecond), Host: "h"},
		`{"time":"1795348800250.5","host":"h"}`:                         {Time: at.Add(250500 * time.Microsecond), Host: "h"},
		`{"time":1795348800000123,"host":"h"}`:                          {Time: at.Add(123 * time.Microsecond), Host: "h"},
		`{"time":1795348800000123000,"host":"h"}`:                       {Time: at.Add(123 * time.Microsecond), Host: "h"},
		"1795348800250 k 2":                                             {Time: at.Add(250 * time.Millisecond), Host: "k", Cost: 2},
		"2100-12-31T23:59:59Z k":                                        {Time: time.Date(2100, 12, 31, 23, 59, 59, 0, time.UTC), Host: "k"},
		// The client is the remote address and not the server that was asked. Its port differs with
		// each connection.
		`{"time":1795348800,"host":"example.org","remote_addr":"10.0.0.1:5000"}`: {Time: at, Host: "10.0.0.1"},
		`{"time":1795348800,"remote_addr":"[2001:db8::1]:5000"}`:                 {Time: at, Host: "2001:db8::1"},
		`{"time":1795348800,"key":"10.0.0.1:5000","ip":"10.0.0.2"}`:              {Time: at, Host: "10.0.0.1:5000"},
		// nginx, with variables under their own names
		`{"time_local":"22/Nov/2026:13:00:00 +0100","remote_addr":"::1","remote_user":"","request":"GET /a?b HTTP/1.1","body_bytes_sent":"7"}`: {
			Time: at, Host: "::1", Method: "GET", Path: "/a?b", Bytes: 7},
		`{"time_iso8601":"2026-11-22T12:00:00+00:00","msec":"1795348800.250","remote_addr":"::1"}`: {Time: at.Add(250 * time.Millisecond), Host: "::1"},
		// Caddy
		`{"level":"info","ts":1795348800.5,"request":{"remote_ip":"10.0.0.1","client_ip":"10.0.0.2","method":"GET","host":"x.org","uri":"/a"},"user_id":"","size":7,"status":200}`: {
			Time: at.Add(500 * time.Millisecond), Host: "10.0.0.2", Method: "GET", Path: "/a", Status: 200, Bytes: 7},
		// Traefik, whose time is when the request ended, in whole seconds
		`{"ClientAddr":"10.0.0.1:99","ClientHost":"10.0.0.1","ClientUsername":"-","DownstreamContentSize":7,"RequestMethod":"GET","RequestPath":"/a","StartUTC":"2026-11-22T12:00:00.25Z","time":"2026-11-22T12:00:01Z"}`: {
			Time: at.Add(250 * time.Millisecond), Host: "10.0.0.1", User: "-", Method: "GET", Path: "/a", Bytes: 7},
		// Docker's log driver json-file, with a line of either format inside
		`{"log":"10.0.0.1 - bob [22/Nov/2026:13:00:00 +0100] \"GET /a HTTP/1.1\" 200 7 \"-\" \"-\"\n","stream":"stdout","time":"2026-11-22T12:00:01.5Z"}`: {
			Time: at, Host: "10.0.0.1", User: "bob", Method: "GET", Path: "/a", Status: 200, Bytes: 7},
		`{"log":"{\"ts\":1795348800.5,\"key\":\"k\"}\r\n","stream":"stderr","attrs":{"tag":"x"},"time":"2026-11-22T12:00:01.5Z"}`: {Time: at.Add(500 * time.Millisecond), Host: "k"},
		`{"log":"handled","time":1795348800,"key":"k"}`: {Time: at, Host: "k"},
		// Envoy, as Istio sets it up
		`{"start_time":"2026-11-22T12:00:00Z","downstream_remote_address":"10.0.0.1:99","method":"GET","path":"/a","bytes_sent":7}`: {
			Time: at, Host: "10.0.0.1", Method: "GET", Path: "/a", Bytes: 7},
		// prefixes that other programs put in front of a web server's line
		`Nov 22 12:00:00 web1 nginx: 10.0.0.1 - - [22/Nov/2026:12:00:00 +0000] "GET / HTTP/1.1" 200 1`: {
			Time: at, Host: "10.0.0.1", Method: "GET", Path: "/", Status: 200, Bytes: 1},
		`Nov 22 12:00:00 web1 nginx[811]: 2001:db8::1 - bob smith [22/Nov/2026:12:00:00 +0000] "GET / HTTP/1.1" 200 1`: {
			Time: at, Host: "2001:db8::1", User: "bob smith", Method: "GET", Path: "/", Status: 200, Bytes: 1},
		`Nov 22 12:00:00 web1 httpd: v:80 intranet - bob [22/Nov/2026:12:00:00 +0000] "GET / HTTP/1.1" 200 1`: {
			Time: at, Host: "intranet", User: "bob", Method: "GET", Path: "/", Status: 200, Bytes: 1},
		`<30>1 2026-11-22T12:00:00Z web1 httpd 811 access.log - localhost - - [22/Nov/2026:12:00:00 +0000] "GET / HTTP/1.1" 200 1`: {
			Time: at, Host: "localhost", Method: "GET", Path: "/", Status: 200, Bytes: 1},
		`<190>1 2026-11-22T12:00:00Z web1.example.org nginx 811 - - 10.0.0.1 - - [22/Nov/2026:12:00:00 +0000] "GET / HTTP/1.1" 200 1`: {
			Time: at, Host: "10.0.0.1", Method: "GET", Path: "/", Status: 200, Bytes: 1},
		`<30>1 2026-11-22T12:00:00Z box nginx:1.25/web 2222 nginx:1.25/web - 10.0.0.1 - bob [22/Nov/2026:12:00:00 +0000] "GET / HTTP/1.1" 200 1`: {
			Time: at, Host: "10.0.0.1", User: "bob", Method: "GET", Path: "/", Status: 200, Bytes: 1},
		`<30>1 2026-11-22T12:00:00Z box nginx.service - - - 2001:db8::1 - - [22/Nov/2026:12:00:00 +0000] "GET / HTTP/1.1" 200 1`: {
			Time: at, Host: "2001:db8::1", Method: "GET", Path: "/", Status: 200, Bytes: 1},
		`web_1  | 10.0.0.1 - - [22/Nov/2026:12:00:00 +0000] "GET / HTTP/1.1" 200 1`: {
			Time: at, Host: "10.0.0.1", Method: "GET", Path: "/", Status: 200, Bytes: 1},
		// A client may choose its user name, but the name must not change the host.
		`www.example.org - a 10.9.9.9 - b [22/Nov/2026:12:00:00 +0000] "GET / HTTP/1.1" 200 1`: {
			Time: at, Host: "www.example.org", User: "a 10.9.9.9 - b", Method: "GET", Path: "/", Status: 200, Bytes: 1},
		`h - a 10.9.9.9 - b [22/Nov/2026:12:00:00 +0000] "GET / HTTP/1.1" 200 1`: {
			Time: at, Host: "h", User: "a 10.9.9.9 - b", Method: "GET", Path: "/", Status: 200, Bytes: 1},
		`{"@timestamp":"2026-11-22T12:00:00Z","remote_addr":"::1","remote_user":"bob","request_method":"GET","uri":"/a b?c","status":200,"body_bytes_sent":"51"}`: {
			Time: at, Host: "::1", User: "bob", Method: "GET", Path: "/a b?c", Status: 200, Bytes: 51},
		`h - bob smith [22/Nov/2026:12:00:00 +0000] "GET / HTTP/1.1" 200 1`: {Time: at, Host: "h", User: "bob smith", Method: "GET", Path: "/", Status: 200, Bytes: 1},
		`v:80 h - bob [22/Nov/2026:12:00:00 +0000] "GET / HTTP/1.1" 200 1`:  {Time: at, Host: "h", User: "bob", Method: "GET", Path: "/", Status: 200, Bytes: 1},
	} {
		reader, err := NewReader(strings.NewReader(line))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := reader.Read(); err != nil || got != want {
			t.Errorf("%s\nis %+v, %v %v\nnot %+v", line, got, err, reader.FirstBad(), want)
		}
	}
	for line, cause := range map[string]string{
		"2026-11-22T12:00:00Z alice 0":                badCost,
		"2026-11-22T12:00:00Z alice -3":               badCost,
		"2026-11-22T12:00:00Z alice 1 more":           noTime,
		"2026-11-22 12:00:00 alice 1 more":            noTime,
		"2026-11-22 12:00:00 alice 0":                 badCost,
		"2026-11-22 alice 3":                          noTime,
		"2026-11-22 13:00:00 CET 17":                  badZoneName,
		`h - - [00000000 UTC] "GET / HTTP/1.1" 200 7`: badTime,
		"2026/11/22 13:00:00.5 CET alice":             badZoneName,
		// Rows of CSV without a header, and lines of an object or a frame, are not keys.
		"2026-11-22 12:00:00.500 UTC,10.0.0.1,/a": noTime,
		"2026-11-22 12:00:00 CET,10.0.0.1,/a":     noTime,
		"22/Nov/2026:12:00:00 +0000|10.0.0.1|200": noTime,
		"22/Nov/2026:12:00:00 +0000;10.0.0.1;200": noTime,
		"Sun rises":                             noTime,
		"2026-11-22T12:00:00.5Z }":              notKey,
		"2026-11-22T12:00:00.5Z =====":          notKey,
		"2026-11-22T12:00:00.5Z port: 3000":     notKey,
		"2026-11-22T12:00:00.5Z \"port\": 3000": notKey,
		"yesterday alice":                       noTime,
		"NaN alice":                             noTime,
		"1e300 alice":                           noTime,
		"{not json":                             badJSON,
		`{"time":1795348800} {"time":1}`:        badJSON,
		`{"host":"h"}`:                          noJSONTime,
		`{"time":"noon","host":"h"}`:            noJSONTime,
		`{"time":50000000000,"host":"h"}`:       noJSONTime, // between the ranges of seconds and milliseconds
		"4133980800 alice":                      noTime,
		"4133980800000 alice":                   noTime,
		"2101-01-01T00:00:00Z alice":            noTime,
		"2026-11-22T12:00:00Z,alice":            noTime,
		`{"time":1795348800,"cost":0}`:          badCost,
		`{"time":1795348800,"cost":1.5}`:        badCost,
		`{"time":1795348800,"method":"a b"}`:    badMethod,
		// lines without a host, behind the time at which they were collected, and other words
		`2026-11-22T12:00:01.5Z stdout F [22/Nov/2026:12:00:00 +0000] "GET /a HTTP/1.1" 200 7`: noFields,
		`Nov 22 12:00:01 web1 nginx: [22/Nov/2026:12:00:00 +0000] "GET /a HTTP/1.1" 200 7`:     noFields,
		// a connection that HAProxy did not take
		`10.0.0.1:33317 [22/Nov/2026:12:00:00.500] in/1: Connection closed during SSL handshake`: noTime,
		// lines that resemble those of Rails, uWSGI, Tornado, Squid and Amazon
		`Started GET "/a" for someone at 2026-11-22 12:00:00 +0000`:                                                    noTime,
		`Completed 200 OK in 12ms (Views: 10.3ms | ActiveRecord: 0.5ms)`:                                               noTime,
		`[pid: 8|app: 0|req: 1/1] 10.0.0.1 () {42 vars in 675 bytes} [no time] GET /a => generated 7 bytes in 0 msecs`: noTime,
		`[I 261122 12:00:00 app:12] 200 users of bob (10.0.0.1) 1.23ms`:                                                noTime,
		`[I 12:00:00.500 NotebookApp] 200 GET /a (10.0.0.1) 1.23ms`:                                                    noTime,
		`1795348800.500 123 10.0.0.1 TCP_MISS/200 many GET http://x.org/ - HIER_DIRECT/192.0.2.1 -`:                    noTime,
		`79a5 bucket [22/Nov/2026:12:00:00 +0000] 10.0.0.1 - 3E57 key "GET /a HTTP/1.1" 200 - 7`:                       noTime,
		`tls 2.0 2026-11-22T12:00:00 net/lb/c6e7 g3d4 - 172.100.100.185:443 5 2 98 7 -`:                                noTime,
		`CEF:0|F5|ASM|12.0|200|a|5|src=10.0.0.1 msg=no time`:                                                           noTime,
		`CEF:0|F5|ASM|12.0|200|a|5|rt=1795348800500 msg=no client`:                                                     noTime,
		// a line of a program that is not a request
		`2026-11-22T12:00:01.5Z listening host=0.0.0.0 port=80`:                                           noTime,
		`{"host":"web1","message":"listening","source_type":"file","timestamp":"2026-11-22T12:00:01.5Z"}`: noTime,
		`{"log":"listening on :80\n","stream":"stdout","time":"2026-11-22T12:00:01.5Z"}`:                  noTime,
	} {
		reader, err := NewReader(strings.NewReader(line))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := reader.Read(); err == nil || reader.BadLines() != 1 || !strings.HasPrefix(reader.FirstBad()[0].Cause, cause) {
			t.Errorf("%s\nis %+v, %v, not bad for %q", line, got, reader.FirstBad(), cause)
		}
	}
}

func TestCostsAndUsers(t *testing.T) {
	r := Request{Host: "h", Bytes: 1001}
	for kind, want := range map[CostKind]int64{CostRequests: 1, CostBytes: 1001, CostKilobytes: 2} {
		if parsed, err := ParseCostKind(string(kind)); err != nil || parsed.Of(r) != want || kind.Of(Request{}) != 1 {
			t.Errorf("%s: %v, %d, want %d", kind, err, parsed.Of(r), want)
		}
	}
	if got := CostKilobytes.Of(Request{Bytes: math.MaxInt64}); got != math.MaxInt64/1000+1 {
		t.Errorf("the largest size costs %d kB", got)
	}
	if CostRequests.Of(Request{Cost: 9}) != 9 {
		t.Error("the log's cost is not taken")
	}
	if _, err := ParseCostKind("tokens"); err == nil {
		t.Error("no error")
	}
	if KeyUser.Of(r) != "-" || KeyUser.Of(Request{Host: "h", User: "bob"}) != "bob" {
		t.Error("keys of users")
	}
}
