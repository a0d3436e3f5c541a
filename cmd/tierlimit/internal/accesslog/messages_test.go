package accesslog

import (
	"strings"
	"testing"
)

// A program's messages stand among its requests. They are no requests of a key of their own, whatever format
// they have and whoever collected them.
func TestMessagesAreNoRequests(t *testing.T) {
	for name, log := range map[string]string{
		"Fastify": `{"level":30,"time":1795348800500,"hostname":"web1","reqId":"req-1","req":{"method":"GET","url":"/a","remoteAddress":"10.0.0.1","remotePort":4711},"msg":"incoming request"}
{"level":30,"time":1795348800502,"hostname":"web1","reqId":"req-1","res":{"statusCode":200},"responseTime":2.1,"msg":"request completed"}`,
		"Caddy": `{"level":"info","ts":1795348800.5,"logger":"http.log.access","msg":"handled request","request":{"client_ip":"10.0.0.1","uri":"/a"}}
{"level":"info","ts":1795348800.5,"logger":"tls","msg":"cleaning storage unit","storage":"FileStorage:/data/caddy"}`,
		"Traefik": `10.0.0.1 - - [22/Nov/2026:12:00:00 +0000] "GET /a HTTP/1.1" 200 7 "-" "-" 1 "web@docker" "http://172.17.0.2:80" 2ms
time="2026-11-22T12:00:00Z" level=info msg="Configuration loaded from flags."`,
		"slog in Kubernetes": `2026-11-22T12:00:01.5Z stdout F {"time":"2026-11-22T12:00:00.5Z","level":"INFO","msg":"request","ip":"10.0.0.1","path":"/a"}
2026-11-22T12:00:01.5Z stdout F {"time":"2026-11-22T12:00:00.5Z","level":"INFO","msg":"listening","addr":":80"}`,
		// Without spaces, this object must not be taken for a key behind a time.
		"kubectl logs --timestamps": `2026-11-22T12:00:01.5Z {"time":"2026-11-22T12:00:00.5Z","level":"INFO","msg":"request","ip":"10.0.0.1"}
2026-11-22T12:00:01.5Z {"time":"2026-11-22T12:00:00.5Z","level":"INFO","msg":"listening"}`,
		"the same without a time of their own": `2026-11-22T12:00:01.5Z {"level":"INFO","msg":"request","ip":"10.0.0.1"}
2026-11-22T12:00:01.5Z {"level":"INFO","msg":"listening"}`,
		"Logstash, whose host is the machine": `{"@timestamp":"2026-11-22T12:00:00.5Z","host":"web1","clientip":"10.0.0.1","message":"handled"}
{"@timestamp":"2026-11-22T12:00:00.5Z","host":"web1","message":"started"}`,
		"GELF": `{"version":"1.1","host":"web1","short_message":"GET","timestamp":1795348800.5,"_client_ip":"10.0.0.1"}
{"version":"1.1","host":"web1","short_message":"started","timestamp":1795348800.5}`,
		"Cloud Run": `{"httpRequest":{"requestUrl":"https://x/a","remoteIp":"10.0.0.1"},"timestamp":"2026-11-22T12:00:00.5Z"}
{"textPayload":"Listening on 8080","timestamp":"2026-11-22T12:00:00.5Z","severity":"INFO"}`,
	} {
		read, requests, err := readAll(t, strings.NewReader(log))
		if err != nil || len(requests) != 1 || requests[0].Host != "10.0.0.1" || read.BadLines() != 1 || read.FirstBad()[0].Cause != noRequest {
			t.Errorf("%s: %v, %+v, %v", name, err, requests, read.FirstBad())
		}
	}
}

// Whatever names a key makes a message a request.
func TestMessagesThatAreRequests(t *testing.T) {
	for _, names := range []string{`"key":"k"`, `"user_id":17`, `"path":"/a"`, `"method":"GET"`, `"host":"10.0.0.1"`, `"ip":"a.example.org"`, `"x_forwarded_for":"a"`, `"cost":3`} {
		read, requests, err := readAll(t, strings.NewReader(`{"time":1795348800.5,"level":"info","msg":"a request",`+names+`}`))
		if err != nil || len(requests) != 1 {
			t.Errorf("%s: %v, %+v, %v", names, err, requests, read.FirstBad())
		}
	}
}

// Some programs log a request once when it comes and again when it was answered. It counts once.
func TestRequestsThatAreLoggedTwice(t *testing.T) {
	for name, log := range map[string]string{
		"Kubernetes' audit log": `{"auditID":"a","stage":"RequestReceived","requestURI":"/a","user":{"username":"bob"},"sourceIPs":["10.0.0.1"],"requestReceivedTimestamp":"2026-11-22T12:00:00.5Z"}
{"auditID":"a","stage":"ResponseStarted","requestURI":"/a","user":{"username":"bob"},"sourceIPs":["10.0.0.1"],"requestReceivedTimestamp":"2026-11-22T12:00:00.5Z"}
{"auditID":"a","stage":"ResponseComplete","requestURI":"/a","user":{"username":"bob"},"sourceIPs":["10.0.0.1"],"requestReceivedTimestamp":"2026-11-22T12:00:00.5Z"}`,
		"Spring": `2026-11-22T12:00:00.5Z DEBUG 1 --- [exec-1] o.s.w.f.CommonsRequestLoggingFilter      : Before request [GET /a, client=10.0.0.1]
2026-11-22T12:00:00.5Z DEBUG 1 --- [exec-1] o.s.w.f.CommonsRequestLoggingFilter      : After request [GET /a, client=10.0.0.1, payload={"a":[1]}]`,
		"Spring, old": `2026-11-22 12:00:00.500 DEBUG 1 --- [exec-1] o.s.w.f.CommonsRequestLoggingFilter      : Before request [uri=/a;client=10.0.0.1]
2026-11-22 12:00:00.500 DEBUG 1 --- [exec-1] o.s.w.f.CommonsRequestLoggingFilter      : After request [uri=/a;client=10.0.0.1]`,
		"Spring, another text": `2026-11-22T12:00:00.5Z DEBUG 1 --- [exec-1] o.s.w.f.CommonsRequestLoggingFilter : Before request [GET /a, client=10.0.0.1]
2026-11-22T12:00:00.5Z DEBUG 1 --- [exec-1] o.s.w.f.CommonsRequestLoggingFilter : REQUEST DATA: GET /a, client=10.0.0.1]`,
		"Logbook": `{"origin":"remote","type":"request","correlation":"a","remote":"10.0.0.1","method":"GET","path":"/a","time":"2026-11-22T12:00:00.5Z"}
{"origin":"local","type":"response","correlation":"a","status":200,"time":"2026-11-22T12:00:00.5Z"}`,
		"Vault's audit log": `{"type":"request","time":"2026-11-22T12:00:00.5Z","request":{"operation":"read","path":"a","remote_address":"10.0.0.1"}}
{"type":"response","time":"2026-11-22T12:00:00.5Z","request":{"operation":"read","path":"a","remote_address":"10.0.0.1"},"response":{"data":{}}}`,
	} {
		read, requests, err := readAll(t, strings.NewReader(log))
		if err != nil || len(requests) != 1 || requests[0].Host != "10.0.0.1" || read.FirstBad()[0].Cause != loggedTwice {
			t.Errorf("%s: %v, %+v, %v", name, err, requests, read.FirstBad())
		}
	}
	const own = `{"time":1795348800,"ip":"10.0.0.1","type":"response","stage":"RequestReceived"}`
	if read, requests, err := readAll(t, strings.NewReader(own)); err != nil || len(requests) != 1 {
		t.Errorf("another program's field: %v, %+v, %v", err, requests, read.FirstBad())
	}
}

// Logs that people may take for logs of requests are refused by name.
func TestLogsWithoutRequests(t *testing.T) {
	for name, c := range map[string]struct{ log, cause string }{
		"AWS VPC": {"version account-id interface-id srcaddr dstaddr srcport dstport protocol packets bytes start end action log-status\n" +
			"2 123456789010 eni-1235b8ca 10.0.0.1 10.0.0.2 20641 22 6 20 4249 1795348800 1795348860 ACCEPT OK", "a flow log of Amazon's VPC"},
		"MongoDB": {`{"t":{"$date":"2026-11-22T12:00:00.123+00:00"},"s":"I","c":"NETWORK","id":22943,"ctx":"listener","msg":"Connection accepted","attr":{"remote":"10.0.0.1:51234"}}`,
			"MongoDB's log"},
		"PostgreSQL": {`2026-11-22 12:00:00.123 UTC,"bob","db",12345,"10.0.0.1:53712",65b0a1f2.3039,1,"SELECT",2026-11-22 11:59:00 UTC,3/0,0,LOG,00000,"duration: 0.123 ms",,,,,,,,,"psql","client backend",,0` + "\n" +
			`2026-11-22 12:00:00.123 CET,,,12345,,65b0a1f2.3039,1,,2026-11-22 11:59:00 CET,,0,LOG,00000,"ready",,,,,,,,,"","postmaster",,0`, "PostgreSQL's csvlog"},
	} {
		read, requests, err := readAll(t, strings.NewReader(c.log))
		if err != nil || len(requests) != 0 {
			t.Errorf("%s: %v, %+v", name, err, requests)
		}
		for _, bad := range read.FirstBad() {
			if !strings.HasPrefix(bad.Cause, c.cause) {
				t.Errorf("%s: %s", name, bad)
			}
		}
	}
}
