package accesslog

import "strings"

// parseUpstream reads formats that people make for nginx to see which upstream answers, and how fast. They begin
// with the time and the client, and have the request, perhaps without quotes, behind other words:
//
//	[02/Jan/2006:15:04:05 -0700] 10.0.0.1 - user - www.example.org to: 10.0.0.2:80: METHOD path PROTO status …
func parseUpstream(line []byte) (Request, bool) {
	stamp, rest, ok := strings.Cut(strings.TrimPrefix(string(line), "["), "] ")
	at, timed := parseStamp(stamp)
	words := strings.Fields(rest)
	if !ok || !timed || line[0] != '[' || len(words) < 3 || !addressIn([]byte(words[0])).IsValid() {
		return Request{}, false
	}
	r := Request{Time: at, Host: firstOf(words[0])}
	if words[1] == "-" && words[2] != "-" && len(words) > 3 && words[3] == "-" {
		r.User = words[2]
	}
	for i := 1; i+2 < len(words); i++ {
		method := strings.TrimPrefix(words[i], `"`)
		protocol := words[i+2]
		if !isMethod(method) || method == "-" || !strings.Contains(words[i+1], "/") || !strings.HasPrefix(protocol, "HTTP/") {
			continue
		}
		r.Method, r.Path = method, withoutOrigin(words[i+1])
		if result := words[i+3:]; len(result) > 0 && isStatus(result[0]) {
			r.Status = int(digits([]byte(result[0])))
			if len(result) > 1 {
				r.Bytes = max(0, digits([]byte(result[1])))
			}
		}
		return r, true
	}
	return Request{}, false
}
