package accesslog

import "bytes"

// parseLTSV reads labeled tab-separated values, with the labels that fields have elsewhere:
//
//	time:[02/Jan/2006:15:04:05 -0700]	host:10.0.0.1	req:METHOD path PROTO	status:200	size:7
func parseLTSV(line []byte) (Request, bool) {
	if bytes.IndexByte(line, '\t') < 0 {
		return Request{}, false
	}
	var room [32]field
	of := fields(room[:0])
	for value := range bytes.SplitSeq(line, []byte("\t")) {
		label, text, ok := bytes.Cut(value, []byte(":"))
		if !ok || !isName(string(label)) {
			return Request{}, false
		}
		of = append(of, field{name: label, value: text, plain: true})
	}
	r, f := of.request()
	return r, f.what == ""
}
