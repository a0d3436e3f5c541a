package accesslog

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"
)

// colours are what programs write for a terminal.
var colours = regexp.MustCompile(`\x1b\[[0-9;]*m`)

// parseGin reads the lines of the Go framework gin. Its time has no zone and is taken to be UTC:
//
//	[GIN] 2006/01/02 - 15:04:05 | 200 |     1.2ms |        10.0.0.1 | GET      "/a"
func parseGin(line []byte) (Request, bool) {
	_, text, ok := strings.Cut(string(line), "[GIN] ")
	if !ok {
		return Request{}, false
	}
	cells := strings.SplitN(colours.ReplaceAllString(text, ""), "|", 5)
	if len(cells) < 5 {
		return Request{}, false
	}
	for i, cell := range cells {
		cells[i] = strings.TrimSpace(cell)
	}
	at, ok := parseStamp(strings.Replace(cells[0], " - ", " ", 1))
	method, path, _ := strings.Cut(cells[4], " ")
	path, err := strconv.Unquote(strings.TrimSpace(path))
	if !ok || err != nil || cells[3] == "" {
		return Request{}, false
	}
	return Request{Time: at, Host: cells[3], Method: method, Path: path, Status: int(max(0, min(999, digits([]byte(cells[1])))))}, true
}

// parseChi reads the lines of the Go router chi. Its time has no zone and is taken to be UTC:
//
//	2006/01/02 15:04:05 [request] "METHOD url PROTO" from client:port - 200 7B in 1.2ms
func parseChi(line []byte) (Request, bool) {
	if !bytes.Contains(line, []byte("from ")) {
		return Request{}, false
	}
	text := colours.ReplaceAllString(string(line), "")
	from := strings.LastIndex(text, `" from `)
	if from < 0 {
		return Request{}, false
	}
	text, result := text[:from], text[from+len(`" from `):]
	front, request, ok := strings.Cut(text, `"`)
	words := strings.Fields(result)
	if !ok || len(words) < 4 || words[1] != "-" || !strings.HasSuffix(words[3], "B") {
		return Request{}, false
	}
	at, ok := parseStamp(stampIn(front))
	r := Request{
		Time: at, Host: withoutPort(words[0]),
		Status: int(max(0, min(999, digits([]byte(words[2]))))), Bytes: max(0, digits([]byte(strings.TrimSuffix(words[3], "B")))),
	}
	r.Method, r.Path = splitRequest(request)
	r.Path = withoutOrigin(r.Path)
	return r, ok
}
