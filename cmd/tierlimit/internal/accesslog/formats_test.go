package accesslog

import (
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"
)

// These are logs of other programs in their default formats, with a header if they have one. Each log
// has one request.
func TestFormatsOfOthers(t *testing.T) {
	at := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	get := Request{Time: at, Host: "10.0.0.1", Method: "GET", Path: "/a?b", Status: 200, Bytes: 7}
	with := func(change func(*Request)) Request {
		r := get
		change(&r)
		return r
	}
	half := with(func(r *Request) { r.Time = at.Add(500 * time.Millisecond) })
	clf := `10.0.0.1 - - [22/Nov/2026:12:00:00 +0000] "GET /a?b HTTP/1.1" 200 7`
	for name, c := range map[string]struct {
		log  string
		want Request
	}{
		"nginx combined with $request_time":  {clf + ` "-" "Mozilla/5.0 (X11) [en]" 0.003`, get},
		"Apache combined with %D":            {clf + ` "https://example.org/?a=\"b\"" "curl/8" 1532`, get},
		"Apache vhost_combined":              {"www.example.org:443 " + clf + ` "-" "curl/8"`, get},
		"ingress-nginx, years ago":           {strings.Replace(clf, "- -", "- [10.0.0.1] - bob", 1) + ` "-" "curl/8" 83 0.003 [default-web-80] 10.1.2.3:8080 7 0.003 200`, with(func(r *Request) { r.User = "bob" })},
		"ingress-nginx, years ago, no user":  {strings.Replace(clf, "- -", "- [10.0.0.1] - -", 1) + ` "-" "curl/8" 83 0.003 [default-web-80] 10.1.2.3:8080 7 0.003 200`, get},
		"nginx with upstream times":          {`[22/Nov/2026:12:00:00 +0000] 10.0.0.1 - bob - www.example.org to: 10.1.2.3:80: GET /a?b HTTP/1.1 200 upstream_response_time 0.1 msec 1.5 request_time 0.1`, with(func(r *Request) { r.Bytes, r.User = 0, "bob" })},
		"nginx with upstream times, quoted":  {`[22/Nov/2026:12:00:00 +0000] 10.0.0.1 - - - www.example.org to: 10.1.2.3:80, 10.1.2.4:80: "GET /a?b HTTP/1.1" 200 upstream_response_time 0.1, 0.2 request_time 0.3`, with(func(r *Request) { r.Bytes = 0 })},
		"nginx with upstream times, IPv6":    {`[2026-11-22T13:00:00+01:00] 2001:db8::1 www.example.org to: [2001:db8::2]:80: GET https://www.example.org/a?b HTTP/2.0 request_time 0.1`, with(func(r *Request) { r.Bytes, r.Status, r.Host = 0, 0, "2001:db8::1" })},
		"ingress-nginx":                      {clf + ` "-" "curl/8" 83 0.003 [default-web-80] [] 10.1.2.3:8080 7 0.003 200 4bd4`, get},
		"Traefik CLF":                        {clf + ` "-" "curl/8" 1 "web@docker" "http://172.17.0.2:80" 2ms`, get},
		"Nginx Proxy Manager, a proxy host":  {`[22/Nov/2026:12:00:00 +0000] - 200 200 - GET https www.example.org "/a?b" [Client 10.0.0.1] [Length 7] [Gzip 3.1] [Sent-to 10.0.0.2] "curl/8" "-"`, get},
		"Nginx Proxy Manager, cached":        {`[22/Nov/2026:12:00:00 +0000] HIT - 200 - GET https www.example.org "/a?b" [Client 10.0.0.1] [Length 7] [Gzip -] [Sent-to 10.0.0.2] "curl/8 [Client 10.9.9.9]" "-"`, get},
		"Nginx Proxy Manager, no proxy host": {`[22/Nov/2026:12:00:00 +0000] 200 - GET http www.example.org "/a?b" [Client 10.0.0.1] [Length 7] [Gzip -] "-" "-"`, get},
		"GlassFish":                          {`"10.0.0.1" "NULL-AUTH-USER" "22/Nov/2026:12:00:00 +0000" "GET /a?b HTTP/1.1" 200 7`, get},
		"GlassFish, with a user":             {`"10.0.0.1" "bob smith" "22/Nov/2026:12:00:00 +0000" "GET /a?b HTTP/1.1" 200 7`, with(func(r *Request) { r.User = "bob smith" })},
		"Apache ssl_request_log":             {`[22/Nov/2026:12:00:00 +0000] 10.0.0.1 TLSv1.3 TLS_AES_256_GCM_SHA384 "GET /a?b HTTP/1.1" 7`, with(func(r *Request) { r.Status = 0 })},
		"nginx with $remote_port":            {strings.Replace(clf, "10.0.0.1 ", "10.0.0.1:4711 ", 1), get},
		"Jetty, IPv6":                        {strings.Replace(clf, "10.0.0.1 ", "[2001:db8::1] ", 1), with(func(r *Request) { r.Host = "2001:db8::1" })},
		"a name in brackets":                 {strings.Replace(clf, "10.0.0.1 ", "[web] ", 1), with(func(r *Request) { r.Host = "[web]" })},
		"the same behind a virtual host":     {"www.example.org:443 " + strings.Replace(clf, "10.0.0.1 ", "10.0.0.1:4711 ", 1), get},
		"the same of IPv6":                   {strings.Replace(clf, "10.0.0.1 ", "[2001:db8::1]:4711 ", 1), with(func(r *Request) { r.Host = "2001:db8::1" })},
		"lighttpd, with a virtual host":      {strings.Replace(clf, "10.0.0.1 -", "10.0.0.1 www.example.org", 1), get},
		"lighttpd behind syslog":             {"Nov 22 12:00:01 web1 lighttpd[8]: " + strings.Replace(clf, "10.0.0.1 -", "10.0.0.1 www.example.org", 1), get},
		"lighttpd behind docker compose":     {"web-1  | " + strings.Replace(clf, "10.0.0.1 - -", "10.0.0.1 www.example.org bob", 1), with(func(r *Request) { r.User = "bob" })},
		"X-Forwarded-For in front":           {strings.Replace(clf, "10.0.0.1 ", "10.0.0.1, 10.0.0.8, 10.0.0.9 ", 1), get},
		"the same without spaces":            {strings.Replace(clf, "10.0.0.1 ", "10.0.0.1,10.0.0.9 ", 1), get},
		"the same in quotes":                 {strings.Replace(clf, "10.0.0.1 ", `"10.0.0.1:4711, 10.0.0.8" 10.0.0.9 `, 1), get},
		"the same list behind another":       {"www.example.org:443 " + strings.Replace(clf, "10.0.0.1 ", "10.0.0.1, 10.0.0.9 ", 1), get},
		"a list and a proxy":                 {strings.Replace(clf, "10.0.0.1 ", "10.0.0.1, 10.0.0.8 10.0.0.9 ", 1), get},
		"client and proxy":                   {strings.Replace(clf, "10.0.0.1 ", "203.0.113.9 10.0.0.1 ", 1), with(func(r *Request) { r.Host = "203.0.113.9" })},
		"proxy and client":                   {strings.Replace(clf, "10.0.0.1 ", "10.0.0.1 203.0.113.9 ", 1), with(func(r *Request) { r.Host = "203.0.113.9" })},
		"no X-Forwarded-For":                 {"- " + clf, get},
		"a port, and a user with a space":    {strings.Replace(clf, "10.0.0.1 - -", "10.0.0.1:4711 - bob smith", 1), with(func(r *Request) { r.User = "bob smith" })},
		"nginx with $time_iso8601":           {strings.Replace(clf, "22/Nov/2026:12:00:00 +0000", "2026-11-22T12:00:00+00:00", 1) + ` "-" "curl/8"`, get},
		"a quote that is not escaped":        {strings.Replace(clf, "/a?b", `/a" "b`, 1), with(func(r *Request) { r.Path = `/a" "b` })},
		"Python's http.server":               {`10.0.0.1 - - [22/Nov/2026 12:00:00] "GET /a?b HTTP/1.1" 200 -`, with(func(r *Request) { r.Bytes = 0 })},
		"nginx with \"$host\"":               {strings.Replace(clf, `"GET`, `"www.example.org" "GET`, 1), get},
		"nginx with $msec":                   {strings.Replace(clf, "22/Nov/2026:12:00:00 +0000", "1795348800.500", 1), half},
		// The referer is where Envoy has the forwarded addresses.
		"nginx with $time_iso8601 and four numbers": {strings.Replace(clf, "22/Nov/2026:12:00:00 +0000", "2026-11-22T12:00:00+00:00", 1) + ` 345 0.003 0.002 "https://example.org/" "curl/8"`, get},
		"Fastly":                          {"<134>2026-11-22T12:00:01Z cache-lhr7323 log[1]: " + strings.Replace(clf, "- -", `"-" "-"`, 1), get},
		"RFC 5424, without a host's name": {"<14>1 2026-11-22T12:00:01Z - nginx 8 - - " + clf, get},
		"Kubernetes CRI":                  {"2026-11-22T12:00:01.5Z stdout F " + clf, get},
		"journalctl -o short-iso":         {"2026-11-22T12:00:01+0000 web1 nginx[8]: " + clf, get},
		"journalctl -o json":              {`{"__REALTIME_TIMESTAMP":"1795348801000000","PRIORITY":"6","MESSAGE":"10.0.0.1 - - [22/Nov/2026:12:00:00 +0000] \"GET /a?b HTTP/1.1\" 200 7"}`, get},
		"JSON behind syslog":              {`Nov 22 12:00:01 web1 app[8]: {"time":"2026-11-22T12:00:00Z","ip":"10.0.0.1","method":"GET","path":"/a?b","status":200,"bytes":7}`, get},
		"JSON in Kubernetes CRI":          {`2026-11-22T12:00:01.5Z stderr F {"ts":1795348800,"key":"k"}`, Request{Time: at, Host: "k"}},

		"slog.TextHandler": {`time=2026-11-22T12:00:00.500Z level=INFO msg="a \"request\"" ip=10.0.0.1 method=GET path="/a?b" status=200 bytes=7`, half},

		"slog without a handler":             {`2026/11/22 12:00:00.500000 INFO a request ip=10.0.0.1:4711 method=GET path="/a?b" status=200 bytes=7`, half},
		"slog without a handler or a path":   {`2026/11/22 12:00:00 INFO request remote_addr=[2001:db8::1]:4711`, Request{Time: at, Host: "2001:db8::1"}},
		"zap's console, without a path":      {"2026-11-22T12:00:00.500Z\tINFO\tapp/main.go:12\trequest\t{\"client_ip\": \"10.0.0.1\"}", Request{Time: half.Time, Host: "10.0.0.1"}},
		"slog.TextHandler in Kubernetes CRI": {`2026-11-22T12:00:01.5Z stdout F time=2026-11-22T12:00:00.500Z level=INFO msg="a request" ip=10.0.0.1 method=GET path="/a?b" status=200 bytes=7`, half},
		"logfmt behind syslog":               {`Nov 22 12:00:01 web1 app[8]: time=2026-11-22T12:00:00.500Z ip=10.0.0.1 method=GET path=/a?b status=200 bytes=7`, half},
		"LTSV":                               {"time:[22/Nov/2026:13:00:00 +0100]\thost:10.0.0.1\tuser:-\treq:GET /a?b HTTP/1.1\tstatus:200\tsize:7\treferer:-\tua:curl/8: x=y", with(func(r *Request) { r.User = "-" })},
		"LTSV, nginx":                        {"time_local:22/Nov/2026:13:00:00 +0100\tremote_addr:10.0.0.1\tmethod:GET\turi:/a?b\tstatus:200\tbytes_sent:7\tx_forwarded_for:", get},
		"Heroku's router":                    {`2026-11-22T12:00:00.500000+00:00 heroku[router]: at=info method=GET path="/a?b" host=x.org request_id=86 fwd="10.0.0.1,10.0.0.9" dyno=web.1 connect=1ms status=200 bytes=7 protocol=https`, half},
		"Heroku's router, drained":           {`300 <158>1 2026-11-22T12:00:00.500000+00:00 host heroku router - at=info method=GET path="/a?b" host=x.org fwd="10.0.0.1" dyno=web.1 status=200 bytes=7`, half},
		"lograge":                            {`I, [2026-11-22T12:00:00.500000 #81]  INFO -- : method=GET path=/a?b format=html status=200 duration=5.2 remote_ip=10.0.0.1 bytes=7`, half},
		"lograge behind a zone":              {`[2026-11-22 13:00:00.500 +0100] method=GET path=/a?b status=200 remote_ip=10.0.0.1 bytes=7`, half},
		"Laravel":                            {`[2026-11-22 12:00:00] production.INFO: a request {"ip":"10.0.0.1","path":"/a"} `, Request{Time: at, Host: "10.0.0.1", Path: "/a"}},
		"Symfony":                            {`[2026-11-22T12:00:00.500000+00:00] app.INFO: a request {"ip":"10.0.0.1","path":"/a"} []`, Request{Time: half.Time, Host: "10.0.0.1", Path: "/a"}},
		"Fluentd's files":                    {"2026-11-22T13:00:00.5+01:00\tnginx.access\t{\"remote\":\"10.0.0.1\",\"host\":\"-\",\"method\":\"GET\",\"path\":\"/a?b\",\"status\":200,\"size\":7}", half},
		"Fluentd's output":                   {`2026-11-22 13:00:00.500000000 +0100 nginx.access: {"remote":"10.0.0.1","method":"GET","path":"/a?b","status":200,"size":7}`, half},
		"lograge behind a date":              {`[2026-11-22 12:00:00.500] method=GET path=/a?b status=200 remote_ip=10.0.0.1 bytes=7`, half},

		// Hypercorn writes HTTP's version without its name.
		"Hypercorn": {`[2026-11-22 12:00:00 +0000] [8] [INFO] ` + strings.Replace(strings.Replace(clf, "10.0.0.1 ", "10.0.0.1:4711 ", 1), "HTTP/1.1", "1.1", 1) + ` "-" "curl/8"`, get},
		// Only Hypercorn writes a port behind IPv6 without brackets. A port of five digits cannot be a part of an address.
		"Hypercorn, IPv6":            {`[2026-11-22 12:00:00 +0000] [8] [INFO] ` + strings.Replace(strings.Replace(clf, "10.0.0.1 ", "2001:db8::1:4711 ", 1), "HTTP/1.1", "1.1", 1), with(func(r *Request) { r.Host = "2001:db8::1" })},
		"Hypercorn, ::1":             {`[2026-11-22 12:00:00 +0000] [8] [INFO] ` + strings.Replace(strings.Replace(clf, "10.0.0.1 ", "::1:45362 ", 1), "HTTP/1.1", "2", 1), with(func(r *Request) { r.Host = "::1" })},
		"IPv6 that ends in digits":   {strings.Replace(clf, "10.0.0.1 ", "2001:db8::1:4711 ", 1), with(func(r *Request) { r.Host = "2001:db8::1:4711" })},
		"Apache with %{remote}p":     {strings.Replace(clf, "10.0.0.1 ", "10.0.0.1 41470 ", 1), get},
		"the same behind syslog":     {"Nov 22 12:00:01 web1 httpd: " + strings.Replace(clf, "10.0.0.1 - -", "2001:db8::1 41470 - bob", 1), with(func(r *Request) { r.Host, r.User = "2001:db8::1", "bob" })},
		"Apache with %{...}t":        {strings.Replace(clf, "[22/Nov/2026:12:00:00 +0000]", "2026-11-22T13:00:00+0100", 1), get},
		"Varnish, the same":          {strings.Replace(clf, "- - [22/Nov/2026:12:00:00 +0000]", "- bob smith 2026-11-22T12:00:00Z", 1), with(func(r *Request) { r.User = "bob smith" })},
		"Apache's %m and %U in JSON": {`{"time":"2026-11-22T12:00:00+0000","remoteIP":"10.0.0.1","method":"GET","request":"/a?b","status":"200","bytes":"7"}`, get},
		"nginx, a quoted user":       {strings.Replace(clf, "- - [", `- "bob smith" [`, 1), with(func(r *Request) { r.User = "bob smith" })},
		"a list that is missing":     {strings.Replace(clf, "10.0.0.1 - -", `10.0.0.1 "-" - bob`, 1), with(func(r *Request) { r.User = "bob" })},
		"lighttpd, a user with a -":  {strings.Replace(clf, "10.0.0.1 - -", "10.0.0.1 www.example.org anna smith - sales", 1), with(func(r *Request) { r.User = "anna smith - sales" })},
		"Squid, a client that left":  {strings.Replace(clf, "200 7", "0 0 TCP_MISS_ABORTED:HIER_NONE", 1), with(func(r *Request) { r.Status, r.Bytes = 0, 0 })},
		"Squid's common format":      {strings.Replace(clf, "200 7", "0 0", 1), with(func(r *Request) { r.Status, r.Bytes = 0, 0 })},
		"Istio, no HTTP":             {`[2026-11-22T12:00:00Z] "- - -" 0 UF,URX - - "-" 0 7 10000 - "-" "-" "-" "-" "10.9.9.9:3306" outbound|3306||x - 10.9.9.9:3306 10.0.0.1:52692 - -`, Request{Time: at, Host: "10.0.0.1", Bytes: 7}},
		"flyctl logs":                {"2026-11-22T12:00:01Z app[1781] ams [info]" + clf, get},
		"RFC 5424, with a mark":      {"<134>1 2026-11-22T12:00:01Z web1 nginx 8 - - \xef\xbb\xbf" + clf, get},
		"nginx, tabs":                {"2026-11-22T12:00:00.5Z\t10.0.0.1\tbob\tGET /a?b HTTP/1.1\t200\t7", Request{Time: half.Time, Host: "10.0.0.1", Method: "GET", Path: "/a?b"}},
		"GitLab's Workhorse":         {`{"time":"2026-11-22T12:00:00.5Z","host":"x.org","remote_addr":"127.0.0.1:0","remote_ip":"10.0.0.1","method":"GET","uri":"/a"}`, Request{Time: half.Time, Host: "10.0.0.1", Method: "GET", Path: "/a"}},
		"chi's httplog, by path":     {`{"timestamp":"2026-11-22T12:00:00.5Z","message":"GET /a => HTTP 200","httpRequest":{"path":"/a","remoteIP":"10.0.0.1:4711"}}`, Request{Time: half.Time, Host: "10.0.0.1", Path: "/a"}},
		"WildFly":                    {`{"bytesSent":7,"dateTime":"[22/Nov/2026:12:00:00 +0000]","remoteHost":"10.0.0.1","requestLine":"GET /a?b HTTP/1.1"}`, with(func(r *Request) { r.Status = 0 })},
		"Cloudflare's firewall":      {`{"Action":"block","ClientIP":"10.0.0.1","ClientRequestPath":"/a","Datetime":"2026-11-22T12:00:00.5Z"}`, Request{Time: half.Time, Host: "10.0.0.1", Path: "/a"}},
		"CloudFront's milliseconds":  {`{"timestamp(ms)":"1795348800500","c-ip":"10.0.0.1","cs-uri-stem":"/a"}`, Request{Time: half.Time, Host: "10.0.0.1", Path: "/a"}},

		"Hypercorn, HTTP/2": {strings.Replace(clf, "HTTP/1.1", "2", 1), get},
		"a path with a 2":   {strings.Replace(clf, "/a?b HTTP", "/a 2 HTTP", 1), with(func(r *Request) { r.Path = "/a 2" })},

		// A logger puts its time and its name in front of the server's line.
		"Python's logging":               {"2026-11-22 12:00:00,123 - werkzeug - INFO - " + clf, get},
		"Python's logging, no name":      {"2026-11-22 12:00:00,123 - INFO - " + clf, get},
		"Python's logging, only a clock": {"12:00:00,123 - INFO - " + clf, get},
		"a logger's name with a point":   {"2026-11-22 12:00:00.123 INFO  io.undertow.accesslog - " + clf, get},
		"loguru":                         {"2026-11-22 12:00:00.123 | INFO     | werkzeug:_log:97 - " + clf, get},
		"aiohttp":                        {strings.Replace(clf, " - -", "", 1), get},
		"aiohttp behind a logger":        {"2026-11-22 12:00:00,123 - aiohttp.access - INFO - " + strings.Replace(clf, " - -", "", 1), get},
		"a name, and a user":             {"2026-11-22T12:00:01.5Z stdout F www.example.org - a 10.9.9.9 - b" + strings.TrimPrefix(clf, "10.0.0.1 - -"), with(func(r *Request) { r.Host, r.User = "www.example.org", "a 10.9.9.9 - b" })},

		"Python's basicConfig":      {"INFO:werkzeug:" + clf, get},
		"the same of aiohttp":       {"INFO:aiohttp.access:" + strings.Replace(clf, " - -", "", 1), get},
		"php-fpm":                   {`10.0.0.1 -  22/Nov/2026:12:00:00 +0000 "GET /index.php" 200`, Request{Time: at, Host: "10.0.0.1", Method: "GET", Path: "/index.php", Status: 200}},
		"php-fpm, a user":           {`10.0.0.1 - bob 22/Nov/2026:12:00:00 +0000 "GET /index.php" 200`, Request{Time: at, Host: "10.0.0.1", User: "bob", Method: "GET", Path: "/index.php", Status: 200}},
		"php-fpm, no client":        {`- -  22/Nov/2026:12:00:00 +0000 "GET /index.php" 200`, Request{Time: at, Host: "-", Method: "GET", Path: "/index.php", Status: 200}},
		"php-fpm, script and so on": {`10.0.0.1 -  22/Nov/2026:12:00:00 +0000 "GET /a?b" 200 /srv/index.php 12.345 2048 80.00%`, with(func(r *Request) { r.Bytes = 0 })},
		"php-fpm in Docker":         {`web-1  | 10.0.0.1 -  22/Nov/2026:12:00:00 +0000 "GET /index.php" 200`, Request{Time: at, Host: "10.0.0.1", Method: "GET", Path: "/index.php", Status: 200}},

		"Sanic":                       {`[2026-11-22 13:00:00 +0100] - (sanic.access)[INFO][10.0.0.1:4711]: GET http://x.org/a?b  200 7`, get},
		"Sanic, new":                  {`Srv 0 |2026-11-22 12:00:00 +0000 INFO: 2001:db8::1:4711 GET http://x.org/a?b 200 7 1.2ms`, with(func(r *Request) { r.Host = "2001:db8::1" })},
		"nginx without quotes":        {`2026-11-22T13:00:00+01:00 10.0.0.1 GET /a?b HTTP/1.1 200 7 0.003`, get},
		"nginx, words in between":     {strings.Replace(clf, `] "`, `] https www.example.org "`, 1), get},
		"nginx without a user":        {strings.Replace(clf, "- - ", "- ", 1), get},
		"grep in several files":       {"access.log.1:" + clf, get},
		"grep of a list":              {"access.log.1:" + strings.Replace(clf, "10.0.0.1 ", "10.0.0.1, 10.0.0.8 10.0.0.9 ", 1), get},
		"grep of names and values":    {`access.log.1:time=2026-11-22T12:00:00.500Z ip=10.0.0.1 method=GET path=/a?b status=200 bytes=7`, half},
		"the time first, in Docker":   {`web-1  | [22/Nov/2026:12:00:00 +0000] 10.0.0.1 - bob "GET /a?b HTTP/1.1" 200 7`, with(func(r *Request) { r.User = "bob" })},
		"the time first, in CRI":      {`2026-11-22T12:00:01.5Z stdout F [22/Nov/2026:12:00:00 +0000] 10.0.0.1 - bob "GET /a?b HTTP/1.1" 200 7`, with(func(r *Request) { r.User = "bob" })},
		"the time first, syslog":      {`Nov 22 12:00:01 web1 nginx: [22/Nov/2026:12:00:00 +0000] 10.0.0.1 - - "GET /a?b HTTP/1.1" 200 7`, get},
		"words behind the time":       {`10.0.0.1 - bob [22/Nov/2026:12:00:00 +0000] 10.9.9.9 - - "GET /a?b HTTP/1.1" 200 7`, with(func(r *Request) { r.User = "bob" })},
		"a client alone, in CRI":      {`2026-11-22T12:00:01.5Z stdout F [22/Nov/2026:12:00:00 +0000] 10.0.0.1 "GET /a?b HTTP/1.1" 200 7`, get},
		"the same without brackets":   {`2026-11-22T12:00:01.5Z stdout F 2026-11-22T13:00:00+01:00 10.0.0.1 GET /a?b HTTP/1.1 200 7`, get},
		"grep of IPv6":                {"access.log:" + strings.Replace(clf, "10.0.0.1", "2001:db8::1", 1), with(func(r *Request) { r.Host = "2001:db8::1" })},
		"grep -n":                     {"access.log:12:" + clf, get},
		"grep in several files, JSON": {`access.log.1:{"time":1795348800,"ip":"10.0.0.1"}`, Request{Time: at, Host: "10.0.0.1"}},
		"an array without brackets":   {`{"time":1795348800,"ip":"10.0.0.1"},`, Request{Time: at, Host: "10.0.0.1"}},
		"Spring": {`2026-11-22T12:00:00.500Z DEBUG 1 --- [exec-1] o.s.w.f.CommonsRequestLoggingFilter : Before request [GET /a, client=10.0.0.1, session=A, user=bob, headers=[host:"x"]]`,
			Request{Time: half.Time, Host: "10.0.0.1", Method: "GET", Path: "/a", User: "bob"}},
		"Spring, no client":       {`2026-11-22T12:00:00.500Z DEBUG Before request [GET /a]`, Request{Time: half.Time, Host: "-", Method: "GET", Path: "/a"}},
		"IIS's own format":        {"10.0.0.1, -, 11/22/2026, 12:00:00, W3SVC2, web1, 10.9.9.9, 15, 163, 7, 200, 0, GET, /a, -,\r\n", with(func(r *Request) { r.Path = "/a" })},
		"IIS's own format, old":   {`10.0.0.1, bob, 11/22/26, 12:00:00, W3SVC2, web1, 10.9.9.9, 15, 163, 7, 200, 0, GET, /a, -,`, with(func(r *Request) { r.Path, r.User = "/a", "bob" })},
		"AWS CloudFront, at once": {"1795348800.500\t10.0.0.1\t0.002\t200\t7\tGET\thttps\td111.cloudfront.net\t/a\t23", Request{Time: half.Time, Host: "10.0.0.1", Method: "GET", Path: "/a"}},
		"names as Go's fields":    {`{"Time":"2026-11-22T12:00:00.5Z","RemoteAddr":"10.0.0.1:4711","Method":"GET","URL":"/a","UserID":17}`, Request{Time: half.Time, Host: "10.0.0.1", Method: "GET", Path: "/a", User: "17"}},
		"a duration, no time":     {`2026-11-22T12:00:00.500Z {"request_time":0.123,"Request":{"Client_IP":"10.0.0.1"},"clientIP":""}`, Request{Time: half.Time, Host: "10.0.0.1"}},
		"Azure's CSV of tables":   {"TimeGenerated [UTC],clientIp_s,requestUri_s\n2026-11-22T12:00:00.5Z,10.0.0.1,https://x.org/a", Request{Time: half.Time, Host: "10.0.0.1", Path: "/a"}},
		"BigQuery's CSV":          {"timestamp,httpRequest_remoteIp\n2026-11-22 12:00:00.5 UTC,10.0.0.1", Request{Time: half.Time, Host: "10.0.0.1"}},
		"lograge, a time of Ruby": {`method=GET path=/a?b status=200 time=2026-11-22 13:00:00 +0100 ip=10.0.0.1 bytes=7`, get},
		"nginx, names and values": {`time=[22/Nov/2026:12:00:00 +0000] remote_addr=10.0.0.1 request="GET /a?b HTTP/1.1" status=200 body_bytes_sent=7`, get},
		"Google's App Engine":     {`{"protoPayload":{"ip":"10.0.0.1","startTime":"2026-11-22T12:00:00.5Z","resource":"/a"},"timestamp":"2026-11-22T12:00:00.5Z"}`, Request{Time: half.Time, Host: "10.0.0.1", Path: "/a"}},
		"Google's storage":        {"\"time_micros\",\"c_ip\",\"cs_method\",\"cs_uri\",\"sc_bytes\"\n\"1795348800500000\",\"10.0.0.1\",\"GET\",\"/a\",\"7\"", Request{Time: half.Time, Host: "10.0.0.1", Method: "GET", Path: "/a", Bytes: 7}},
		"Oracle's load balancer":  {`{"data":{"clientAddr":"10.0.0.1:4711","request":"GET /a HTTP/1.1"},"time":"2026-11-22T12:00:00.5Z"}`, Request{Time: half.Time, Host: "10.0.0.1"}},
		"Grafana's own log":       {`logger=context userId=1 t=2026-11-22T12:00:00.5Z level=info msg="Request Completed" method=GET path=/a remote_addr=10.0.0.1`, Request{Time: half.Time, Host: "10.0.0.1", User: "1", Method: "GET", Path: "/a"}},
		"Azure, a US date":        {`{"time":"11/22/2026 12:00:00 PM","properties":{"clientIp":"10.0.0.1"}}`, Request{Time: at, Host: "10.0.0.1"}},
		"Azure's CSV, a US date":  {"TimeGenerated,ClientIp\n\"11/22/2026, 12:00:00.500 PM\",10.0.0.1", Request{Time: half.Time, Host: "10.0.0.1"}},
		".NET, a US date":         {"time,ip\n11/2/2026 1:00:00 PM +01:00,10.0.0.1", Request{Time: at.AddDate(0, 0, -20), Host: "10.0.0.1"}},
		"a zone with a colon":     {`2026-11-22 13:00:00.500 +01:00 17 3`, Request{Time: half.Time, Host: "17", Cost: 3}},

		"gin":                      {`[GIN] 2026/11/22 - 12:00:00 | 200 |     1.2345ms |        10.0.0.1 | GET      "/a?b"`, with(func(r *Request) { r.Bytes = 0 })},
		"gin behind a prefix":      {`2026-11-22T12:00:01.5Z stdout F [GIN] 2026/11/22 - 12:00:00 | 200 | 13.4µs | 2001:db8::1 | GET      "/a?b"`, with(func(r *Request) { r.Bytes, r.Host = 0, "2001:db8::1" })},
		"gin with colours":         {"[GIN] 2026/11/22 - 12:00:00 |\x1b[97;42m 200 \x1b[0m|      13.4µs |        10.0.0.1 |\x1b[97;44m GET     \x1b[0m \"/a?b\"", with(func(r *Request) { r.Bytes = 0 })},
		"gin, a bar in a path":     {`[GIN] 2026/11/22 - 12:00:00 | 404 | 1ms | 10.0.0.1 | GET "/a|b | c"`, Request{Time: at, Host: "10.0.0.1", Method: "GET", Path: "/a|b | c", Status: 404}},
		"chi":                      {`2026/11/22 12:00:00 "GET http://x.org/a?b HTTP/1.1" from 10.0.0.1:4711 - 200 7B in 1.2ms`, get},
		"chi, with a request's ID": {`2026/11/22 12:00:00 [web1/abc-000001] "GET https://x.org/a?b HTTP/2.0" from [2001:db8::1]:4711 - 200 7B in 1.2ms`, with(func(r *Request) { r.Host = "2001:db8::1" })},
		"chi with colours":         {"2026/11/22 12:00:00 \x1b[36m\"\x1b[0m\x1b[1;35mGET \x1b[0m\x1b[36mhttp://x.org/a?b HTTP/1.1\" \x1b[0mfrom 10.0.0.1:4711 - \x1b[1;32m200\x1b[0m\x1b[1;34m 7B\x1b[0m in \x1b[32m1.2ms\x1b[0m", get},
		"chi, behind real_ip":      {`2026/11/22 12:00:00 "GET http://x.org/a?b HTTP/1.1" from 10.0.0.1 - 200 7B in 1.2ms`, get},

		"Rails":                      {`I, [2026-11-22T13:00:00.512345 #81]  INFO -- : [4bd4] Started GET "/a?b" for 10.0.0.1 at 2026-11-22 13:00:00 +0100`, Request{Time: at, Host: "10.0.0.1", Method: "GET", Path: "/a?b"}},
		"Rails, in development":      {`Started GET "/a" for "b" for ::1 at 2026-11-22 12:00:00 UTC`, Request{Time: at, Host: "::1", Method: "GET", Path: `/a" for "b`}},
		"uWSGI":                      {`[pid: 8|app: 0|req: 1/1] 10.0.0.1 () {42 vars in 675 bytes} [Sun Nov 22 12:00:00 2026] GET /a?b => generated 7 bytes in 0 msecs (HTTP/1.1 200) 2 headers in 79 bytes (1 switches on core 0)`, with(func(r *Request) { r.Status = 0 })},
		"uWSGI, forwarded, and user": {`web-1  | [pid: 8|app: -1|req: -1/2] 10.0.0.1, 10.0.0.9 (bob) {42 vars in 675 bytes} [Sun Nov  1 12:00:00 2026] POST /a => generated 1 => generated 7 bytes in 0 msecs (HTTP/1.1 200)`, Request{Time: at.AddDate(0, 0, -21), Host: "10.0.0.1", User: "bob", Method: "POST", Path: "/a => generated 1", Bytes: 7}},
		"uWSGI behind a socket":      {`[pid: 8|app: 0|req: 1/1]  () {42 vars in 675 bytes} [Sun Nov 22 12:00:00 2026] GET /a => generated 7 bytes in 0 msecs (HTTP/1.1 200)`, Request{Time: at, Host: "-", Method: "GET", Path: "/a", Bytes: 7}},
		"Tornado":                    {`[I 261122 12:00:00 web:2271] 200 GET /a?b (10.0.0.1) 1.23ms`, with(func(r *Request) { r.Bytes = 0 })},
		"Jupyter":                    {`[W 2026-11-22 12:00:00.500 ServerApp] 404 GET /a?b (bob@::1) 1.23ms referer=https://x.org/`, Request{Time: half.Time, Host: "::1", User: "bob", Method: "GET", Path: "/a?b", Status: 404}},
		"JupyterHub":                 {`2026-11-22T12:00:01.5Z [I 2026-11-22 12:00:00.500 JupyterHub log:191] 302 GET /a -> /b (@10.0.0.1) 1.23ms`, Request{Time: half.Time, Host: "10.0.0.1", Method: "GET", Path: "/a", Status: 302}},
		"Squid":                      {`1795348800.500    123 10.0.0.1 TCP_MISS/200 7 GET http://x.org/a?b bob HIER_DIRECT/192.0.2.1 text/html`, Request{Time: half.Time, Host: "10.0.0.1", User: "bob", Method: "GET", Path: "http://x.org/a?b", Status: 200, Bytes: 7}},
		"Squid with a date":          {`22/Nov/2026:13:00:00 +0100    123 10.0.0.1 TCP_MISS/200 7 GET http://x.org/a?b - HIER_DIRECT/192.0.2.1 text/html`, Request{Time: at, Host: "10.0.0.1", Method: "GET", Path: "http://x.org/a?b", Status: 200, Bytes: 7}},
		"Squid behind syslog":        {`Nov 22 12:00:01 fw (squid-1)[8]: 1795348800.500      5 2001:db8::1 TCP_TUNNEL/200 7 CONNECT x.org:443 - HIER_DIRECT/192.0.2.1 -`, Request{Time: half.Time, Host: "2001:db8::1", Method: "CONNECT", Path: "x.org:443", Status: 200, Bytes: 7}},
		"CEF":                        {`CEF:0|Imperva \| Inc.|SecureSphere|12.0|200|a request|5|rt=1795348800500 src=10.0.0.1 spt=4711 msg=not src\=10.9.9.9 requestMethod=GET request=https://x.org/a?b\=c suser=bob smith out=7`, Request{Time: half.Time, Host: "10.0.0.1", User: "bob smith", Method: "GET", Path: "/a?b=c", Bytes: 7}},
		"CEF behind syslog":          {`Nov 22 12:00:01 waf CEF:0|F5|ASM|12.0|200|a|5|src=2001:db8::1 start=Nov 22 2026 12:00:00.500 request=/a`, Request{Time: half.Time, Host: "2001:db8::1", Path: "/a"}},
		"AWS S3":                     {`79a59df9 bucket [22/Nov/2026:12:00:00 +0000] 10.0.0.1 - 3E57427F3 REST.GET.OBJECT a+b.png "GET /a?b HTTP/1.1" 200 - 7 4423 7 5 "https://x.org/" "Mozilla [en] "x"" - s9lz= SigV4 ECDHE AuthHeader bucket.s3.amazonaws.com TLSV1.2 - -`, get},
		"AWS S3, a user and an error": {`79a59df9 bucket [22/Nov/2026:12:00:00 +0000] 2001:db8::1 arn:aws:iam::1:user/bob 3E57427F3 REST.GET.OBJECT key "GET /a HTTP/1.1" 404 NoSuchKey 7 - 7 - "-" "S3Console/0.4" -`,
			Request{Time: at, Host: "2001:db8::1", User: "arn:aws:iam::1:user/bob", Method: "GET", Path: "/a", Status: 404, Bytes: 7}},
		"AWS NLB": {`tls 2.0 2026-11-22T12:00:00 net/lb/c6e7 g3d4 10.0.0.1:51341 172.100.100.185:443 5 2 98 7 - arn:aws:acm:x - ECDHE-RSA tlsv12 - lb.elb.amazonaws.com h2 - "h2","http/1.1" 2026-11-22T11:59:59`, Request{Time: at, Host: "10.0.0.1", Bytes: 7}},

		"APISIX, with the host":              {strings.Replace(clf, `] "`, `] www.example.org "`, 1) + ` 0.003 "-" "Mozilla/5.0 [en] " 10.0.0.2:80 200 0.002`, get},
		"Tomcat with %I":                     {strings.Replace(clf, `] "`, `] http-nio-8080-exec-1 "`, 1), get},
		"Jetty without a user":               {strings.Replace(clf, "- -", "-  - ", 1), get},
		"AWS API Gateway's CLF":              {strings.Replace(clf, `] "`, `]"`, 1) + ` c6af9ac6-7b61`, get},
		"the time first":                     {`[22/Nov/2026:12:00:00 +0000] 10.0.0.1 - bob "GET /a?b HTTP/1.1" 200 7 "-" "curl/8"`, with(func(r *Request) { r.User = "bob" })},
		"the time first, and the host alone": {`[22/Nov/2026:12:00:00 +0000] 10.0.0.1 "GET /a?b HTTP/1.1" 200 7`, get},
		"Istio 1.5":                          {`[2026-11-22T12:00:00.500Z] "GET /a?b HTTP/1.1" 200 - "-" 0 7 1 0 "10.0.0.9" "curl/8" "cc21" "x:80" "10.0.2.1:80" inbound|80|| 127.0.0.6:5 10.0.2.1:80 10.0.0.1:41 - default`, half},

		"Envoy":                   {`[2026-11-22T12:00:00.500Z] "GET /a?b HTTP/2" 200 - 154 7 226 100 "10.0.0.1, 10.0.0.9" "curl/8" "cc21" "x.org" "tcp://10.0.2.1:80"`, half},
		"Envoy in Kubernetes CRI": {`2026-11-22T12:00:01.5Z stdout F [2026-11-22T12:00:00.500Z] "GET /a?b HTTP/2" 200 - 154 7 226 100 "10.0.0.1" "curl/8" "cc21" "x.org" "10.0.2.1:80"`, half},
		"Envoy behind journald":   {`Nov 22 12:00:01 web1 envoy[8]: [2026-11-22T12:00:00.500Z] "GET /a?b HTTP/2" 200 UF,URX 154 7 226 100 "10.0.0.1" "curl/8" "cc21" "x.org" "10.0.2.1:80"`, half},
		"Envoy without X-Forwarded-For": {`[2026-11-22T12:00:00.500Z] "GET /a?b HTTP/2" 200 - 154 7 226 100 "-" "curl/8" "cc21" "x.org" "10.0.2.1:80"`,
			with(func(r *Request) { r.Time, r.Host = half.Time, "-" })},
		"Istio": {`[2026-11-22T12:00:00.500Z] "GET /a?b HTTP/1.1" 200 - via_upstream - "-" 0 7 1 0 "-" "curl/8" "cc21" "x:80" "10.0.2.1:80" inbound|80|| 127.0.0.6:5 10.0.2.1:80 10.0.0.1:41 - default`, half},

		"HAProxy": {`Nov 22 12:00:01 lb haproxy[14389]: 10.0.0.1:33317 [22/Nov/2026:12:00:00.500] in static/srv1 10/0/30/69/109 200 7 - - ---- 1/1/1/1/0 0/0 {1wt.eu} {} "GET /a?b HTTP/1.1"`, half},
		// HAProxy writes IPv6 addresses without brackets.
		"HAProxy, a socket of both": {`<134>Nov 22 12:00:01 haproxy[7]: ::ffff:10.0.0.1:54708 [22/Nov/2026:12:00:00.500] in static/srv1 89/0/0/1/268 200 7 - - ---- 1/1/0/0/0 0/0 "GET /a?b HTTP/1.1"`,
			with(func(r *Request) { r.Time, r.Host = half.Time, "::ffff:10.0.0.1" })},
		"HAProxy, IPv6": {`2001:db8::1:33317 [22/Nov/2026:12:00:00.500] in static/srv1 10/0/30/69/109 200 7 - - ---- 1/1/1/1/0 0/0 "GET /a?b HTTP/1.1"`,
			with(func(r *Request) { r.Time, r.Host = half.Time, "2001:db8::1" })},
		"HAProxy, HTTP/2": {`10.0.0.1:33317 [22/Nov/2026:12:00:00.500] in~ static/srv1 10/0/30/69/109 200 7 - - ---- 1/1/1/1/0 0/0 "GET https://x.org/a?b HTTP/2.0"`, half},
		"HAProxy, TCP":    {`10.0.0.1:33317 [22/Nov/2026:12:00:00.500] in static/srv1 0/0/5007 7 -- 0/0/0/0/3 0/0`, Request{Time: half.Time, Host: "10.0.0.1", Bytes: 7}},
		"AWS ALB": {`https 2026-11-22T12:00:00.500000Z app/lb/50dc 10.0.0.1:2817 10.0.0.2:80 0.086 0.048 0.037 200 200 34 7 "GET https://www.example.com:443/a?b HTTP/1.1" "curl/8" ECDHE-RSA TLSv1.2 arn:aws:x "Root=1-58" "www.example.com" "-" 1 2026-11-22T12:00:00.4Z "forward" "-" "-" "10.0.0.2:80" "200" "-" "-"`,
			half},
		"AWS ALB without a target": {`h2 2026-11-22T12:00:00.500000Z app/lb/50dc [2001:db8::1]:2817 - -1 -1 -1 400 - 0 7 "- http://x:80- -" "-" - -`,
			Request{Time: half.Time, Host: "2001:db8::1", Method: "-", Path: "/", Status: 400, Bytes: 7}},
		"AWS ALB, IPv6 without brackets": {`h2 2026-11-22T12:00:00.500000Z app/lb/50dc 2001:db8:0:0:0:0:0:1:2817 10.0.0.2:80 0.1 0.1 0.1 200 200 0 7 "GET https://x.org:443/a?b HTTP/2.0" "-" - -`,
			with(func(r *Request) { r.Time, r.Host = half.Time, "2001:db8::1" })},
		"AWS classic": {`2026-11-22T12:00:00.500000Z lb 10.0.0.1:2817 10.0.0.2:80 0.00007 0.001 0.00005 200 200 0 7 "GET http://www.example.com:80/a?b HTTP/1.1" "curl/8" - -`, half},
		"AWS CloudFront": {"#Version: 1.0\n#Fields: date time x-edge-location sc-bytes c-ip cs-method cs(Host) cs-uri-stem sc-status cs(User-Agent)\n" +
			"2026-11-22\t12:00:00\tLHR50\t7\t10.0.0.1\tGET\td111.cloudfront.net\t/a\t200\tMozilla/5.0%20(X11)", with(func(r *Request) { r.Path = "/a" })},
		"AWS API Gateway":      {`{"requestId":"c6af","ip":"10.0.0.1","requestTime":"22/Nov/2026:12:00:00 +0000","httpMethod":"GET","resourcePath":"/a?b","status":"200","protocol":"HTTP/1.1","responseLength":"7"}`, get},
		"AWS CloudFront, JSON": {`{"date":"2026-11-22","time":"12:00:00","x-edge-location":"LHR50","sc-bytes":"7","c-ip":"10.0.0.1","cs-method":"GET","cs(Host)":"d111.cloudfront.net","cs-uri-stem":"/a?b","sc-status":"200"}`, get},
		"IIS": {"#Software: Microsoft Internet Information Services 10.0\r\n#Version: 1.0\r\n#Date: 2026-11-22 12:00:00\r\n#Fields: date time s-ip cs-method cs-uri-stem cs-uri-query s-port cs-username c-ip cs(User-Agent) sc-status sc-bytes time-taken\r\n" +
			"2026-11-22 12:00:00 10.9.9.9 GET /a - 443 DOMAIN\\bob 10.0.0.1 Mozilla/5.0+(X11) 200 7 15\r\n", with(func(r *Request) { r.Path, r.User = "/a", `DOMAIN\bob` })},
		"Google's load balancer": {`{"httpRequest":{"requestMethod":"GET","requestUrl":"https://x.org/a?b","status":200,"responseSize":"7","remoteIp":"10.0.0.1"},"timestamp":"2026-11-22T12:00:00.500Z"}`, half},
		"Elastic's names":        {`{"@timestamp":"2026-11-22T12:00:00Z","source":{"ip":"10.0.0.1"},"url.path":"/a","user":{"name":"bob"}}`, Request{Time: at, Host: "10.0.0.1", User: "bob", Path: "/a"}},

		"Elastic's names, all nested": {`{"@timestamp":"2026-11-22T12:00:00Z","client":{"ip":"10.0.0.1"},"url":{"original":"/a?b"},"http":{"response":{"body":{"bytes":7}}}}`,
			Request{Time: at, Host: "10.0.0.1", Path: "/a?b", Bytes: 7}},
		"Elastic's names, all flat": {`{"@timestamp":"2026-11-22T12:00:00Z","client.ip":"10.0.0.1","url.original":"/a?b","http.response.body.bytes":7}`,
			Request{Time: at, Host: "10.0.0.1", Path: "/a?b", Bytes: 7}},

		"Cloudflare":                {`{"ClientIP":"10.0.0.1","ClientRequestHost":"x.org","ClientRequestURI":"/a?b","EdgeEndTimestamp":1795348801000000000,"EdgeResponseBytes":7,"EdgeStartTimestamp":1795348800500000000}`, Request{Time: half.Time, Host: "10.0.0.1", Path: "/a?b", Bytes: 7}},
		"Azure Front Door":          {`{"time":"2026-11-22T12:00:00.5000000Z","category":"FrontDoorAccessLog","properties":{"requestUri":"https://x.azurefd.net:443/a?b","responseBytes":"7","clientIp":"10.0.0.1","socketIp":"10.0.0.9"}}`, Request{Time: half.Time, Host: "10.0.0.1", Path: "/a?b", Bytes: 7}},
		"Azure Application Gateway": {`{"timeStamp":"2026-11-22T12:00:00.5+00:00","properties":{"clientIP":"10.0.0.1","requestUri":"/a","sentBytes":7}}`, Request{Time: half.Time, Host: "10.0.0.1", Path: "/a", Bytes: 7}},
		"AWS WAF":                   {`{"timestamp":1795348800500,"action":"ALLOW","httpRequest":{"clientIp":"10.0.0.1","country":"US","headers":[],"uri":"/a?b","httpMethod":"GET"}}`, Request{Time: half.Time, Host: "10.0.0.1", Method: "GET", Path: "/a?b"}},
		"Azure API Management":      {`{"time":"2026-11-22T12:00:00.5Z","callerIpAddress":"10.0.0.1","properties":{"method":"GET","url":"https://x/a"}}`, Request{Time: half.Time, Host: "10.0.0.1", Path: "/a"}},
		"a group of slog":           {`{"time":"2026-11-22T12:00:00.5Z","level":"INFO","msg":"200: OK","request":{"method":"GET","host":"x.org","path":"/a?b","ip":"10.0.0.1:6393"},"response":{"status":200}}`, Request{Time: half.Time, Host: "10.0.0.1", Method: "GET", Path: "/a?b"}},
		"chi's httplog":             {`{"level":"info","httpRequest":{"remoteIP":"10.0.0.1:4711","requestMethod":"GET","requestPath":"/a"},"timestamp":"2026-11-22T12:00:00Z"}`, Request{Time: at, Host: "10.0.0.1", Method: "GET", Path: "/a"}},
		"restify":                   {`{"name":"x","remoteAddress":"10.0.0.1","req":{"method":"GET","url":"/a"},"time":"2026-11-22T12:00:00.5Z","v":0}`, Request{Time: half.Time, Host: "10.0.0.1", Path: "/a"}},
		"OpenTelemetry's names":     {`{"time":"2026-11-22T12:00:00.5Z","client.address":"10.0.0.1","url.path":"/a"}`, Request{Time: half.Time, Host: "10.0.0.1", Path: "/a"}},
		"Suricata":                  {`{"timestamp":"2026-11-22T12:00:00.500000+0000","event_type":"http","src_ip":"10.0.0.1","http":{"url":"/a"}}`, Request{Time: half.Time, Host: "10.0.0.1", Path: "/a"}},
		"Vault":                     {`{"time":"2026-11-22T12:00:00.5Z","type":"request","request":{"operation":"read","path":"secret/a","remote_address":"10.0.0.1"}}`, Request{Time: half.Time, Host: "10.0.0.1", Path: "secret/a"}},
		"Splunk's CSV":              {"\"_time\",clientip,\"uri_path\"\n\"2026-11-22T12:00:00.500+0000\",\"10.0.0.1\",\"/a\"", Request{Time: half.Time, Host: "10.0.0.1", Path: "/a"}},
		"Serilog":                   {`{"@t":"2026-11-22T12:00:00.5Z","@mt":"HTTP","RequestMethod":"GET","RequestPath":"/a","ClientIp":"10.0.0.1"}`, Request{Time: half.Time, Host: "10.0.0.1", Method: "GET", Path: "/a"}},
		// The host of these is the server or the machine. It is the same in all lines.
		"Serilog, with properties": {`{"Timestamp":"2026-11-22T12:00:00.5Z","Level":"Information","Properties":{"RequestPath":"/a","ClientIp":"10.0.0.1"}}`, Request{Time: half.Time, Host: "10.0.0.1", Path: "/a"}},
		"Python's logging in JSON": {`{"asctime":"2026-11-22 12:00:00,500","levelname":"INFO","message":"a request","remote_addr":"10.0.0.1","request_path":"/a"}`, Request{Time: half.Time, Host: "10.0.0.1", Path: "/a"}},
		"Linkerd":                  {`{"client.addr":"10.0.0.1:4711","client.id":"web","host":"x.org","method":"GET","response_bytes":"7","status":200,"timestamp":"2026-11-22T12:00:00.5Z","uri":"http://x.org/a?b"}`, half},
		"Tyk":                      {`{"method":"GET","path":"/a","ip_address":"10.0.0.1","host":"x.org","timestamp":"2026-11-22T12:00:00.5Z"}`, Request{Time: half.Time, Host: "10.0.0.1", Method: "GET", Path: "/a"}},
		"Logback's access log":     {`{"@timestamp":"2026-11-22T13:00:00.500+01:00","method":"GET","requested_uri":"/a","remote_host":"10.0.0.1","host":"web1"}`, Request{Time: half.Time, Host: "10.0.0.1", Method: "GET", Path: "/a"}},
		"Envoy Gateway":            {`{"start_time":"2026-11-22T12:00:00.5Z","method":"GET","x-envoy-origin-path":"/a","x-forwarded-for":"10.0.0.1, 10.0.0.9","host":"x.org"}`, Request{Time: half.Time, Host: "10.0.0.1", Method: "GET", Path: "/a"}},
		"Akamai":                   {`{"reqTimeSec":"1795348800.5","bytes":"7","cliIP":"10.0.0.1","host":"x.org","reqPath":"/a"}`, Request{Time: half.Time, Host: "10.0.0.1", Path: "/a", Bytes: 7}},
		"Datadog":                  {`{"date":"2026-11-22T12:00:00.5Z","host":"web1","message":"GET /a","attributes":{"network":{"client":{"ip":"10.0.0.1"}},"http":{"url":"https://x.org/a?b"}}}`, Request{Time: half.Time, Host: "10.0.0.1", Path: "/a?b"}},
		"Datadog's CSV":            {"date,host,@network.client.ip,@http.url,message\n2026-11-22T12:00:00.5Z,web1,10.0.0.1,/a,GET", Request{Time: half.Time, Host: "10.0.0.1", Path: "/a"}},
		"Athena, of CloudFront":    {"date,time,location,bytes,request_ip,method,host,uri\n2026-11-22,12:00:00,LHR50,7,10.0.0.1,GET,x.org,/a", Request{Time: at, Host: "10.0.0.1", Method: "GET", Path: "/a", Bytes: 7}},
		"Athena, of a balancer":    {"time,elb,client_ip,sent_bytes,request_verb,request_url\n2026-11-22T12:00:00.5Z,x,10.0.0.1,7,GET,https://x.org:443/a?b", Request{Time: half.Time, Host: "10.0.0.1", Path: "/a?b", Bytes: 7}},
		"CloudTrail":               {`{"eventTime":"2026-11-22T12:00:00Z","sourceIPAddress":"10.0.0.1"}`, Request{Time: at, Host: "10.0.0.1"}},
		"Kubernetes' audit log": {`{"kind":"Event","level":"Metadata","auditID":"a","stage":"ResponseComplete","requestURI":"/api?b","verb":"list","user":{"username":"bob","groups":["x"]},"sourceIPs":["10.0.0.1","10.0.0.9"],"responseStatus":{"code":200},"requestReceivedTimestamp":"2026-11-22T12:00:00.500000Z","stageTimestamp":"2026-11-22T12:00:01.600000Z"}`,
			Request{Time: half.Time, Host: "10.0.0.1", User: "bob", Path: "/api?b"}},
		"Azure App Service": {`{"time":"2026-11-22T12:00:00.5Z","category":"AppServiceHTTPLogs","properties":{"CsMethod":"GET","CsUriStem":"/a","SPort":"443","CIp":"10.0.0.1","CsHost":"x.org","ScStatus":200,"ScBytes":7,"TimeTaken":5}}`,
			Request{Time: half.Time, Host: "10.0.0.1", Path: "/a", Bytes: 7}},
		"Azure's tables": {"TimeGenerated,CallerIpAddress,Uri,StatusCode\n2026-11-22T12:00:00.5Z,10.0.0.1:4711,https://x.org:443/a?b,200", Request{Time: half.Time, Host: "10.0.0.1", Path: "/a?b"}},
		"AWS VPC Lattice": {`{"startTime":"2026-11-22T12:00:00.5Z","requestMethod":"GET","requestPath":"/a","sourceIpPort":"10.0.0.1:4711","responseCode":200,"hostHeader":"x.org"}`,
			Request{Time: half.Time, Host: "10.0.0.1", Method: "GET", Path: "/a", Status: 200}},
		"Google's audit log": {`{"protoPayload":{"authenticationInfo":{"principalEmail":"bob@x.org"},"requestMetadata":{"callerIp":"10.0.0.1"},"methodName":"storage.objects.get"},"timestamp":"2026-11-22T12:00:00.5Z","severity":"INFO"}`,
			Request{Time: half.Time, Host: "10.0.0.1", User: "bob@x.org"}},
		"Cloudflare, by path and end": {`{"ClientIP":"10.0.0.1","ClientRequestPath":"/a","EdgeEndTimestamp":"2026-11-22T12:00:00Z"}`, Request{Time: at, Host: "10.0.0.1", Path: "/a"}},
		"MinIO":                       {`{"version":"1","time":"2026-11-22T12:00:00.5Z","api":{"name":"GetObject","bucket":"b"},"remotehost":"10.0.0.1","requestPath":"/b/o","requestHost":"x.org"}`, Request{Time: half.Time, Host: "10.0.0.1", Path: "/b/o"}},
		"Docker's registry":           {`time="2026-11-22T12:00:00.5Z" level=info msg="response completed" http.request.host=x.org http.request.method=GET http.request.remoteaddr="10.0.0.1:4711" http.request.uri=/v2/ http.response.status=200`, Request{Time: half.Time, Host: "10.0.0.1", Path: "/v2/"}},
		"Kong, with a consumer":       {`{"started_at":1795348800500,"client_ip":"10.0.0.1","request":{"uri":"/a"},"consumer":{"username":"bob"}}`, Request{Time: half.Time, Host: "10.0.0.1", User: "bob", Path: "/a"}},
		"CloudTrail, with a user":     {`{"eventTime":"2026-11-22T12:00:00Z","sourceIPAddress":"10.0.0.1","userIdentity":{"type":"IAMUser","arn":"arn:aws:iam::1:user/bob"}}`, Request{Time: at, Host: "10.0.0.1", User: "arn:aws:iam::1:user/bob"}},
		"Tomcat's extended log":       {"#Fields: date time c-ip cs-method cs-uri sc-status bytes\n2026-11-22 12:00:00 10.0.0.1 GET /a?b 200 7", get},
		"Akamai, W3C":                 {"#Fields: date time cs-ip cs-method cs-uri sc-status sc-bytes\n2026-11-22\t12:00:00\t10.0.0.1\tGET\t/a?b\t200\t7", get},
		"Vault's audit log":           {`{"type":"request","time":"2026-11-22T12:00:00.5Z","request":{"id":"a","operation":"read","path":"secret/a","remote_address":"10.0.0.1"}}`, Request{Time: half.Time, Host: "10.0.0.1", Path: "secret/a"}},
		"GELF":                        {`{"version":"1.1","host":"web1","short_message":"GET","timestamp":1795348800.5,"_client_ip":"10.0.0.1","_path":"/a"}`, Request{Time: half.Time, Host: "10.0.0.1", Path: "/a"}},

		// Without an address, the host is the server that was asked. It is the same in all lines.
		"forwarded, and the server":            {`{"time":1795348800.5,"host":"api.example.org","x_forwarded_for":"10.0.0.1, 10.0.0.9","path":"/a"}`, Request{Time: half.Time, Host: "10.0.0.1", Path: "/a"}},
		"Apache's %h and no forwarded address": {`{"time":1795348800.5,"host":"10.0.0.1","x_forwarded_for":"-"}`, Request{Time: half.Time, Host: "10.0.0.1"}},
		"Apache's %h and a forwarded address":  {`{"time":1795348800.5,"host":"10.0.0.1","x_forwarded_for":"10.0.0.9"}`, Request{Time: half.Time, Host: "10.0.0.1"}},
		"nginx's forwarded addresses":          {`{"msec":"1795348800.500","http_x_forwarded_for":"10.0.0.1, 10.0.0.9","host":"api.example.org"}`, Request{Time: half.Time, Host: "10.0.0.1"}},
		"Kong":                                 {`{"started_at":1795348800500,"client_ip":"10.0.0.1","request":{"uri":"/a?b","size":139},"response":{"status":200,"size":7},"service":{"host":"x"}}`, Request{Time: half.Time, Host: "10.0.0.1", Path: "/a?b", Bytes: 7}},
		"pino":                                 {`{"level":30,"time":1795348800500,"hostname":"web1","req":{"id":1,"url":"/a?b","remoteAddress":"10.0.0.1","remotePort":4711},"res":{"statusCode":200}}`, Request{Time: half.Time, Host: "10.0.0.1", Path: "/a?b"}},
		"Caddy 2.4":                            {`{"ts":1795348800.5,"request":{"remote_addr":"10.0.0.1:4711","host":"x.org","uri":"/a?b"},"size":7}`, Request{Time: half.Time, Host: "10.0.0.1", Path: "/a?b", Bytes: 7}},
		"zap":                                  {`{"ts":1795348800.5,"host":"x.org","remoteAddr":"10.0.0.1:4711","path":"/a"}`, Request{Time: half.Time, Host: "10.0.0.1", Path: "/a"}},
		"Logstash":                             {`{"@timestamp":"2026-11-22T12:00:00.500Z","host":"web1","clientip":"10.0.0.1","message":"handled"}`, Request{Time: half.Time, Host: "10.0.0.1"}},
		"Fluent Bit, parsed":                   {`{"date":1795348800.5,"remote":"10.0.0.1","host":"-","user":"-","path":"/a","code":"200","size":"7"}`, Request{Time: half.Time, Host: "10.0.0.1", User: "-", Path: "/a", Bytes: 7}},

		// These collect lines. The time and the host beside a line are the collector's.
		"GELF of Docker":                    {`{"version":"1.1","host":"web1","short_message":` + strconv.Quote(clf) + `,"timestamp":1795348801.5}`, get},
		"Splunk's collector":                {`{"time":1795348801.5,"host":"web1","sourcetype":"access_combined","event":` + strconv.Quote(clf) + `}`, get},
		"Splunk's raw CSV":                  {"_raw,_time,host\n\"" + strings.ReplaceAll(clf, `"`, `""`) + "\",2026-11-22T12:00:01.000+0000,web1", get},
		"Splunk's JSON":                     {`{"preview":false,"result":{"_time":"2026-11-22 12:00:00.500 UTC","clientip":"10.0.0.1","host":"web1"}}`, Request{Time: half.Time, Host: "10.0.0.1"}},
		"Splunk's raw JSON":                 {`{"preview":false,"result":{"_time":"2026-11-22 12:00:01.500 UTC","_raw":` + strconv.Quote(clf) + `,"host":"web1"}}`, get},
		"Kibana's CSV, as people see times": {"\"@timestamp\",\"source.ip\",\"url.path\"\n\"Nov 22, 2026 @ 12:00:00.500\",\"10.0.0.1\",\"/a\"", Request{Time: half.Time, Host: "10.0.0.1", Path: "/a"}},
		"the same, a day of one digit":      {"@timestamp,source.ip\n\"Nov 2, 2026 @ 12:00:00.500\",10.0.0.1", Request{Time: half.Time.AddDate(0, 0, -20), Host: "10.0.0.1"}},
		"Elasticsearch, fields":             {`{"_index":"x","_id":"a","fields":{"@timestamp":["2026-11-22T12:00:00.500Z"],"source.ip":[ "10.0.0.1" ],"url.path":["/a"]}}`, Request{Time: half.Time, Host: "10.0.0.1", Path: "/a"}},
		"Datadog's API": {`{"id":"x","type":"log","attributes":{"timestamp":"2026-11-22T12:00:00.5Z","host":"web1","service":"x","message":"GET /a","attributes":{"network":{"client":{"ip":"10.0.0.1"}},"http":{"url":"/a"}}}}`,
			Request{Time: half.Time, Host: "10.0.0.1", Path: "/a"}},
		"Datadog's CSV of lines":  {"Date,Host,Service,Content\n2026-11-22T12:00:01.500Z,web1,nginx,\"" + strings.ReplaceAll(clf, `"`, `""`) + "\"", get},
		"Elasticsearch":           {`{"_index":"x","_id":"a","_source":{"@timestamp":"2026-11-22T12:00:00.5Z","source":{"ip":"10.0.0.1"},"url":{"path":"/a"}}}`, Request{Time: half.Time, Host: "10.0.0.1", Path: "/a"}},
		"Filebeat":                {`{"@timestamp":"2026-11-22T12:00:01.500Z","host":{"name":"web1"},"message":` + strconv.Quote(clf) + `}`, get},
		"Filebeat, JSON":          {`{"@timestamp":"2026-11-22T12:00:01.500Z","stream":"stdout","message":"{\"ts\":1795348800.5,\"key\":\"k\"}"}`, Request{Time: half.Time, Host: "k"}},
		"Vector":                  {`{"file":"/x","host":"web1","message":` + strconv.Quote(clf) + `,"source_type":"file","timestamp":"2026-11-22T12:00:01.5Z"}`, get},
		"Fluent Bit":              {`{"date":1795348801.5,"log":` + strconv.Quote(clf) + `}`, get},
		"Vector, parsed":          {`{"host":"10.0.0.1","message":"GET /a","path":"/a","source_type":"file","timestamp":"2026-11-22T12:00:00.5Z"}`, Request{Time: half.Time, Host: "10.0.0.1", Path: "/a"}},
		"Loki":                    {`{"labels":{"app":"x"},"line":` + strconv.Quote(clf) + `,"timestamp":"2026-11-22T12:00:01.5Z"}`, get},
		"Google's GKE":            {`{"textPayload":` + strconv.Quote(clf) + `,"timestamp":"2026-11-22T12:00:01.5Z"}`, get},
		"GKE, JSON":               {`{"jsonPayload":{"ip":"10.0.0.1","path":"/a"},"timestamp":"2026-11-22T12:00:00.5Z"}`, Request{Time: half.Time, Host: "10.0.0.1", Path: "/a"}},
		"GKE, the request apart":  {`{"httpRequest":{"requestMethod":"GET","requestUrl":"https://x.org/a?b","status":200,"responseSize":"7","remoteIp":"10.0.0.1"},"jsonPayload":{"remoteIp":"10.0.0.2","remote_ip":"10.0.0.3","method":"put","path":"/c","status":1,"bytes":2},"timestamp":"2026-11-22T12:00:00.500Z"}`, Request{Time: half.Time, Host: "10.0.0.1", Method: "GET", Path: "/a?b", Status: 200, Bytes: 7}},
		"GKE, a part apart":       {`{"httpRequest":{"remoteIp":"10.0.0.1"},"jsonPayload":{"ip":"10.0.0.2","path":"/a","user":"u"},"timestamp":"2026-11-22T12:00:00.5Z"}`, Request{Time: half.Time, Host: "10.0.0.1", Path: "/a", User: "u"}},
		"GKE, a key":              {`{"httpRequest":{"remoteIp":"10.0.0.1"},"jsonPayload":{"key":"k"},"timestamp":"2026-11-22T12:00:00.5Z"}`, Request{Time: half.Time, Host: "k"}},
		"JSON behind a time":      {`2026-11-22T12:00:01.5Z {"time":"2026-11-22T12:00:00.5Z","ip":"10.0.0.1"}`, Request{Time: half.Time, Host: "10.0.0.1"}},
		"HAProxy, option logasap": {`10.0.0.1:33317 [22/Nov/2026:12:00:00.500] in static/srv1 10/0/30/69/+109 200 +2750 - - ---- 1/1/1/1/0 0/0 "GET /a HTTP/1.1"`, Request{Time: half.Time, Host: "10.0.0.1", Method: "GET", Path: "/a", Status: 200, Bytes: 2750}},
		"a payload":               {`{"time":1795348800.5,"ip":"10.0.0.1","message":"{\"date\":\"2026-11-22T12:00:00Z\",\"order\":7}"}`, Request{Time: half.Time, Host: "10.0.0.1"}},
		"a message":               {`{"time":1795348800.5,"ip":"10.0.0.1","message":"in [x] \"y\""}`, Request{Time: half.Time, Host: "10.0.0.1"}},
		"a duration":              {`{"time":0.123,"remote_addr":"10.0.0.1","timestamp":"2026-11-22T12:00:00.5Z"}`, Request{Time: half.Time, Host: "10.0.0.1"}},
		// The port of Java's addresses differs with each connection.
		"an address of Java":      {`{"time":1795348800.5,"remote":"/10.0.0.1:4711","host":"x.org"}`, Request{Time: half.Time, Host: "10.0.0.1"}},
		"a named address of Java": {`{"time":1795348800.5,"remote":"localhost/[2001:db8::1]:4711"}`, Request{Time: half.Time, Host: "2001:db8::1"}},
		"a name with a slash":     {`{"time":1795348800.5,"client":"team/web:1"}`, Request{Time: half.Time, Host: "team/web:1"}},
		"nginx, no escape=json":   {`{"msec":1795348800.500,"remote_addr":"10.0.0.1","request":"GET /a?b HTTP/1.1","status":200,"bytes_sent":7,"http_user_agent":"\x22a\x5Cb\x22 \xC3\xA4"}`, with(func(r *Request) { r.Time, r.Status = half.Time, 200 })},
		"forwarded":               {`{"time":1795348800.5,"client_ip":"10.0.0.1, 10.0.0.9"}`, Request{Time: half.Time, Host: "10.0.0.1"}},
		// Exports of collected lines. The time in front is when a line was collected.
		"Grafana's CSV":         {"Time,Line,tsNs,id\n2026-11-22T12:00:01.5Z,\"" + strings.ReplaceAll(clf, `"`, `""`) + "\",1795348801500000000,1_a", get},
		"CloudWatch's CSV":      {"@timestamp,@message\n2026-11-22 12:00:01.500,\"{\"\"time\"\":1795348800.5,\"\"ip\"\":\"\"10.0.0.1\"\"}\"", Request{Time: half.Time, Host: "10.0.0.1"}},
		"Kibana's CSV":          {"\"@timestamp\",\"host\",message\n\"2026-11-22T12:00:01.500Z\",web1,\"" + strings.ReplaceAll(clf, `"`, `""`) + "\"", get},
		"Zeek":                  {"#separator \\x09\n#set_separator\t,\n#path\thttp\n#fields\tts\tuid\tid.orig_h\tid.orig_p\tmethod\turi\n#types\ttime\tstring\taddr\tport\tstring\tstring\n1795348800.500000\tCwF\t10.0.0.1\t5202\tGET\t/a\n#close\t2026-11-22-13-00-00", Request{Time: half.Time, Host: "10.0.0.1", Method: "GET", Path: "/a"}},
		"W3C with quotes":       {"#Fields: date time c-ip cs-uri-stem cs(User-Agent) sc-bytes\n2026-11-22 12:00:00.500 10.0.0.1 /a \"Mozilla/5.0 (X11; \"\"U\"\")\" 7", Request{Time: half.Time, Host: "10.0.0.1", Path: "/a", Bytes: 7}},
		"W3C, all in quotes":    {"#Fields: date time c-ip cs-uri-stem\n\"2026-11-22\" \"12:00:00\" \"10.0.0.1\" \"/a\"", Request{Time: at, Host: "10.0.0.1", Path: "/a"}},
		"IIS, a client's quote": {"#Fields: date time c-ip cs(User-Agent) sc-bytes\n2026-11-22 12:00:00 10.0.0.1 \"Mozilla/5.0+(X11) 7", Request{Time: at, Host: "10.0.0.1", Bytes: 7}},
		"PostgreSQL's jsonlog":  {`{"timestamp":"2026-11-22 12:00:00.500 UTC","user":"bob","dbname":"db","pid":8,"remote_host":"10.0.0.1","remote_port":53712,"ps":"SELECT","error_severity":"LOG","message":"duration: 0.1 ms"}`, Request{Time: half.Time, Host: "10.0.0.1", User: "bob"}},
		"CSV of PostgreSQL":     {"time,user_id\n2026-11-22 13:00:00.5+01,17", Request{Time: half.Time, Host: "-", User: "17"}},
		"NULs":                  {strings.Repeat("\x00", 5000) + clf, get},

		"CSV":                            {"time,client,path\n2026-11-22T12:00:00Z,10.0.0.1,/a", Request{Time: at, Host: "10.0.0.1", Path: "/a"}},
		"CSV as spreadsheets do":         {"Time;Client IP;Path\r\n2026-11-22 12:00:00;10.0.0.1;\"/a;\"\"b\"\"\"\r\n", Request{Time: at, Host: "10.0.0.1", Path: `/a;"b"`}},
		"CSV with spaces":                {"\"Time\", \"Client IP\", \"Path\"\n\"2026-11-22T12:00:00Z\", \"10.0.0.1\", \"/a, b\"", Request{Time: at, Host: "10.0.0.1", Path: "/a, b"}},
		"bars":                           {"time | ip | path\n2026-11-22 12:00:00+00 | 10.0.0.1 | /a", Request{Time: at, Host: "10.0.0.1", Path: "/a"}},
		"CSV with a date":                {"date,time,user_id,cost\n2026-11-22,12:00:00.5,17,3", Request{Time: half.Time, Host: "-", User: "17", Cost: 3}},
		"CSV with a partition":           {"date,time,ip\n2026-11-22,2026-11-22T12:00:00Z,10.0.0.1", Request{Time: at, Host: "10.0.0.1"}},
		"tabs, the last empty":           {"time\tip\tpath\tuser\n2026-11-22T12:00:00Z\t10.0.0.1\t/a\t", Request{Time: at, Host: "10.0.0.1", Path: "/a"}},
		"tabs with a header":             {"ts\tkey\n1795348800\tuser 17", Request{Time: at, Host: "user 17"}},
		"an array":                       {`[{"time":1795348800,"key":"}"}]`, Request{Time: at, Host: "}"}},
		"an object over many lines":      {"{\n  \"time\": 1795348800,\n  \"request\": {\"client_ip\": \"10.0.0.1\"}\n}\n", Request{Time: at, Host: "10.0.0.1"}},
		"no zone":                        {`{"time":"2026-11-22 12:00:00.500","ip":"10.0.0.1"}`, Request{Time: half.Time, Host: "10.0.0.1"}},
		"a method, and nginx's $request": {`{"time":1795348800,"remote_addr":"10.0.0.1","method":"GET","request":"GET /a?b HTTP/1.1","status":200,"bytes":7}`, get},
		"a method, and a request's ID":   {`{"time":1795348800,"remote_addr":"10.0.0.1","method":"GET","request":"x y"}`, Request{Time: at, Host: "10.0.0.1", Method: "GET"}},
		"a time of JavaScript":           {`{"time":"Sun, 22 Nov 2026 12:00:00 GMT","ip":"10.0.0.1"}`, Request{Time: at, Host: "10.0.0.1"}},
		"a time of C":                    {`{"time":"Sun Nov 22 12:00:00 2026","ip":"10.0.0.1"}`, Request{Time: at, Host: "10.0.0.1"}},
		"a time of Go":                   {`{"time":"2026-11-22 13:00:00.5 +0100 CET m=+3.5","ip":"10.0.0.1"}`, Request{Time: half.Time, Host: "10.0.0.1"}},
		"a clock of 12 hours":            {"time,ip\n2026-11-22 12:00:00 PM,10.0.0.1", Request{Time: at, Host: "10.0.0.1"}},
		"Apache's %t in JSON":            {`{"time":"[22/Nov/2026:13:00:00 +0100]","remote_addr":"10.0.0.1"}`, Request{Time: at, Host: "10.0.0.1"}},
		"Apache's %t in CSV":             {"time,ip\n[22/Nov/2026:13:00:00 +0100],10.0.0.1", Request{Time: at, Host: "10.0.0.1"}},
		"WEBrick, in UTC":                {strings.Replace(clf, "+0000", "UTC", 1), get},
		"HAProxy's names in JSON":        {`{"time":"22/Nov/2026:12:00:00.500","client_ip":"10.0.0.1","path":"/a","bytes_read":7}`, Request{Time: half.Time, Host: "10.0.0.1", Path: "/a", Bytes: 7}},
		"HAProxy's time in JSON":         {`{"time":"22/Nov/2026:12:00:00.500","ip":"10.0.0.1"}`, Request{Time: half.Time, Host: "10.0.0.1"}},
		"a zone without a colon":         {`{"time":"2026-11-22T13:00:00,500+0100","ip":"10.0.0.1"}`, Request{Time: half.Time, Host: "10.0.0.1"}},
		"escapes":                        {`{"t\u0069me":1795348800,"key":"a\"\u00e9","x":[{"}":"]\\"}],"time":1795348800 }`, Request{Time: at, Host: `a"é`}},
	} {
		log, requests, err := readAll(t, strings.NewReader(c.log))
		if err != nil || len(requests) != 1 || log.BadLines() != 0 {
			t.Errorf("%s: %v, %d requests, %v", name, err, len(requests), log.FirstBad())
			continue
		}
		if requests[0] != c.want {
			t.Errorf("%s:\ngot  %+v\nwant %+v", name, requests[0], c.want)
		}
	}
}

// Formats whose lines begin with a time or a type, and have no brackets, are also read behind prefixes and inside
// objects.
func TestFormatsBehindPrefixes(t *testing.T) {
	for format, line := range map[string]string{
		"Squid":            `1795348800.500    123 10.0.0.1 TCP_MISS/200 7 GET http://x.org/a - HIER_DIRECT/192.0.2.1 text/html`,
		"Heroku":           `2026-11-22T12:00:00.500000+00:00 heroku[router]: at=info method=GET path="/a" host=x.org fwd="10.0.0.1" status=200 bytes=7`,
		"AWS ALB":          `https 2026-11-22T12:00:00.5Z app/lb/50 10.0.0.1:2817 10.1.2.3:80 0.1 0.1 0.1 200 200 34 7 "GET https://x.org:443/a HTTP/1.1" "curl/8" - -`,
		"AWS classic ELB":  `2026-11-22T12:00:00.5Z lb 10.0.0.1:2817 10.1.2.3:80 0.1 0.1 0.1 200 200 0 7 "GET http://x.org:80/a HTTP/1.1" "curl/8" - -`,
		"AWS NLB":          `tls 2.0 2026-11-22T12:00:00.5 net/lb/c6e7 g3d4 10.0.0.1:51341 10.1.2.3:443 5 2 98 7 - arn:aws:acm:x - ECDHE-RSA tlsv12 - x.org h2 - - 2026-11-22T11:59:59`,
		"a client, a path": `2026-11-22T12:00:00.5Z 10.0.0.1:4711 "GET /a HTTP/1.1" 200 7`,
	} {
		for name, log := range map[string]string{
			"grep":           "access.log.1:" + line,
			"grep -n":        "/var/log/access.log:12:" + line,
			"Kubernetes CRI": "2026-11-22T12:00:00.5Z stdout F " + line,
			"grep of CRI":    "0.log:2026-11-22T12:00:00.5Z stdout F " + line,
			"syslog":         "<30>Nov 22 12:00:01 web1 app[8]: " + line,
			"Filebeat":       `{"@timestamp":"2026-11-22T12:00:01.5Z","host":{"name":"web1"},"message":` + strconv.Quote(line) + `}`,
		} {
			read, requests, err := readAll(t, strings.NewReader(log))
			if err != nil || len(requests) != 1 {
				t.Errorf("%s, %s: %v, %v, %v", format, name, requests, read.FirstBad(), err)
			} else if r := requests[0]; r.Host != "10.0.0.1" || r.Bytes != 7 || r.Time.UnixMilli() != 1795348800_500 {
				t.Errorf("%s, %s: %+v", format, name, r)
			}
		}
	}
}

// A joined log may contain its header again, or another header.
func TestHeadersAgain(t *testing.T) {
	for name, log := range map[string]string{
		"CSV":  "time,key\n1795348800,a\n\ntime,key\n1795348801,b\n",
		"W3C":  "#Fields: date time c-ip\n2026-11-22 12:00:00 a\n#Fields: c-ip date time cs-method\nb 2026-11-22 12:00:01 GET\n",
		"BOM":  "\xef\xbb\xbftime,key\r\n1795348800,a\r\n\xef\xbb\xbftime,key\r\n1795348801,b\r\n",
		"none": "# a comment\n1795348800 a\n1795348801 b",
	} {
		read, requests, err := readAll(t, strings.NewReader(log))
		if err != nil || len(requests) != 2 || requests[0].Host != "a" || requests[1].Host != "b" || read.BadLines() != 0 {
			t.Errorf("%s: %v, %+v, %v", name, err, requests, read.FirstBad())
		}
	}
}

// What a line of columns lacks is said by its header, and no time is taken for a client.
func TestBadColumns(t *testing.T) {
	for log, cause := range map[string]string{
		"time,ip\n2026-11-22T12:00:00Z,10.0.0.1,/a":                                                          badColumns,
		`2026-11-22T12:00:01.5Z,"10.0.0.1 - - [22/Nov/2026:12:00:00 +0000] ""GET /a HTTP/1.1"" 200 7 ""-"""`: noFields,
	} {
		read, requests, err := readAll(t, strings.NewReader(log))
		if err != nil || len(requests) != 0 || read.BadLines() != 1 || !strings.HasPrefix(read.FirstBad()[0].Cause, cause) {
			t.Errorf("%s: %v, %+v, %v", log, err, requests, read.FirstBad())
		}
	}
}

// Objects may follow one another without a line end, and without one in the whole log.
func TestObjectsInOneLine(t *testing.T) {
	const two = `{"time":1795348800,"key":"a}{"}{"time":1795348801,"key":"b"}`
	for _, log := range []string{two, two + "\n" + two + "\n", strings.Repeat(two, maxLine/40)} {
		read, requests, err := readAll(t, strings.NewReader(log))
		if n := strings.Count(log, "time"); err != nil || len(requests) != n || requests[0].Host != "a}{" || requests[n-1].Host != "b" || read.BadLines() != 0 {
			t.Errorf("%.80s: %v, %d requests, %v", log, err, len(requests), read.FirstBad())
		}
	}
}

// A bad object of an array is left out, like a bad line.
func TestBadObjects(t *testing.T) {
	long := `{"time":1795348800,"key":"` + strings.Repeat("x", maxLine) + `"}`
	log, requests, err := readAll(t, strings.NewReader(`[ {"time":1795348800,"key":"a"}, {"key":"b"}, `+long+`, {"time":1795348801,"key":"c"}, {"time"`))
	if err != nil || len(requests) != 2 || requests[1].Host != "c" {
		t.Fatalf("%v, %+v", err, requests)
	}
	var causes []string
	for _, bad := range log.FirstBad() {
		cause, _, _ := strings.Cut(bad.String(), ", in ")
		causes = append(causes, cause)
	}
	want := "object 2: " + noJSONTime + "; object 3: " + tooLong + "; object 5: " + badJSON
	if got := strings.Join(causes, "; "); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if _, err := log.Read(); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	log, requests, err = readAll(t, strings.NewReader("[\n{\"time\":1795348800,\"key\":\"a},\n{\"time\":1795348801,\"key\":\"b\"},\n{\"time\":1795348802,\"key\":\"c\"}\n]\n"))
	if err != nil || len(requests) != 2 || requests[0].Host != "b" || log.BadLines() != 1 {
		t.Errorf("a string that is not closed: %v, %+v, %d bad", err, requests, log.BadLines())
	}
}

// A log of objects may be followed by lines.
func TestLinesBelowObjects(t *testing.T) {
	const (
		array  = "[{\"time\":1795348800,\"key\":\"a\"}, null,\n{\"time\":1795348800,\"key\":\"b\"}]\n"
		config = "{\n  \"port\": 80,\n  \"env\": \"x\"\n}\n"
		lines  = "listening on 80\n10.0.0.1 - - [22/Nov/2026:12:00:00 +0000] \"GET /{\"a\":1} HTTP/1.1\" 200 7\n \n"
	)
	for _, log := range []string{array + lines, array + byteOrderMark + lines + array, config + lines} {
		want, bad := strings.Count(log, "time")+strings.Count(log, "GET"), strings.Count(log, "port")+strings.Count(log, "listening")
		read, requests, err := readAll(t, strings.NewReader(log))
		if err != nil || len(requests) != want || read.BadLines() != bad {
			t.Errorf("%q: %v, %+v, %v", log, err, requests, read.FirstBad())
		}
	}
	if _, _, err := readAll(t, strings.NewReader(array+gzipMagic+"x")); !errors.Is(err, errJoined) {
		t.Error(err)
	}
}

// If the objects are inside another, the cause says how to unpack them, also if the other is too long to be read.
func TestWrappedObjects(t *testing.T) {
	const inner = `{"time":"2026-11-22T12:00:00Z","ip":"10.0.0.1"}`
	for log, want := range map[string]string{
		`{"records":[` + inner + `,` + inner + `]}`:                                              "jq -c '.records[]'",
		"{\n  \"Records\": [\n    " + inner + "\n  ]\n}\n":                                       "jq -c '.Records[]'",
		`{"count":2,"next":"a","value":[ ` + strings.Repeat(inner+",", maxLine/40) + `]}`:        "jq -c '.value[]'",
		`{"resourceLogs":[{"resource":{},"scopeLogs":[{"logRecords":[{"timeUnixNano":"1"}]}]}]}`: "jq -c '" + openTelemetryFilter + "'",
		`{"level":"info","tags":["a"],"ip":"10.0.0.1"}`:                                          noJSONTime,
		`{"key":"` + strings.Repeat("x", maxLine) + `"}`:                                         tooLong,
	} {
		read, requests, err := readAll(t, strings.NewReader(log))
		if err != nil || len(requests) != 0 || read.BadLines() != 1 || !strings.HasSuffix(read.FirstBad()[0].Cause, want) {
			t.Errorf("%.60s: %v, %+v, %v", log, err, requests, read.FirstBad())
		}
	}
}

// openTelemetryFilter was tried with jq: openTelemetryLines is what it printed.
const (
	openTelemetryFilter = `.resourceLogs[].scopeLogs[].logRecords[] | {time: (.timeUnixNano // .observedTimeUnixNano), message: .body.stringValue}` +
		` + ((.attributes // []) | map({(.key): (.value | (.stringValue // .intValue))}) | add)`
	openTelemetryLines = `{"time":"1795348800500000000","message":null,"client.address":"10.0.0.1","url.path":"/a"}
{"time":"1795348801000000000","message":"10.0.0.2 - - [22/Nov/2026:12:00:00 +0000] \"GET /a HTTP/1.1\" 200 7"}
`
)

// The lines that the filter for OpenTelemetry's files makes can be read.
func TestUnpackedOpenTelemetry(t *testing.T) {
	read, requests, err := readAll(t, strings.NewReader(openTelemetryLines))
	if err != nil || len(requests) != 2 || requests[0].Host != "10.0.0.1" || requests[0].Time.UnixMilli() != 1795348800500 || requests[1].Host != "10.0.0.2" {
		t.Errorf("%v, %+v, %v", err, requests, read.FirstBad())
	}
}
