package accesslog

import (
	"bytes"
	"regexp"
	"slices"
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

// parseFiber reads the lines of the Go framework Fiber, which have a time of day, but no date:
//
//	15:04:05 | 200 |  1.2ms |  10.0.0.1 | GET | /a | -
func parseFiber(text string) (r Request, front string, f fault) {
	if !strings.Contains(text, "|") {
		return r, front, fault{what: noTime}
	}
	cells := strings.Split(colours.ReplaceAllString(text, ""), " | ")
	clock := slices.IndexFunc(cells, func(cell string) bool {
		return isClock([]byte(cell[strings.LastIndexByte(cell, ' ')+1:]))
	})
	last := len(cells) - 1 // what went wrong
	if clock < 0 || last < clock+6 {
		return r, front, fault{what: noTime}
	}
	status, client, method := strings.TrimSpace(cells[clock+1]), strings.TrimSpace(cells[clock+3]), strings.TrimSpace(cells[clock+4])
	if !isStatus(status) || !addressIn([]byte(client)).IsValid() {
		return r, front, fault{what: noTime}
	}
	r = Request{Host: client, Method: method, Path: strings.TrimSpace(strings.Join(cells[clock+5:last], " | ")), Status: int(digits([]byte(status)))}
	return r, strings.Join(cells[:clock+1], " "), fault{}
}
