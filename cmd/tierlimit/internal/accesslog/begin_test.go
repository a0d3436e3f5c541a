package accesslog

import (
	"strings"
	"testing"
)

// A byte order mark is not a part of a line, whether at the beginning of the text, inside the gzip, or
// at the beginning of a further file.
func TestByteOrderMark(t *testing.T) {
	const mark = "\xef\xbb\xbf"
	const marked = mark + good + "\n" + good
	for name, log := range map[string]string{"plain": marked, "gzip": string(zipped(t, marked)), "two files": mark + good + "\r\n" + mark + good, "nothing else": mark} {
		read, requests, err := readAll(t, strings.NewReader(log))
		if err != nil || read.BadLines() != 0 {
			t.Errorf("%s: %v, %v", name, err, read.FirstBad())
		}
		for _, r := range requests {
			if r.Host != "10.0.0.1" {
				t.Errorf("%s: host %q", name, r.Host)
			}
		}
		if name != "nothing else" && len(requests) != 2 {
			t.Errorf("%s: %d requests", name, len(requests))
		}
	}
}

// For a file of another kind, the error names the kind and a command that converts the file, instead of
// showing its bytes.
func TestOtherKindsOfFiles(t *testing.T) {
	for start, words := range map[string][2]string{
		"\x28\xb5\x2f\xfd\x00":                    {"zstd", "zstd -dc"},
		"\xfd7zXZ\x00\x00":                        {"xz", "xz -dc"},
		"BZh91AY&SY":                              {"bzip2", "bzip2 -dc"},
		"\x04\x22\x4d\x18\x64":                    {"lz4", "lz4 -dc"},
		"\x1f\x9d\x90aaaa":                        {"compress", "gzip -dc"},
		"7z\xbc\xaf\x27\x1c\x00":                  {"7z", "7z x -so"},
		"PAR1\x15\x04\x15":                        {"Parquet", "duckdb -csv -c \"FROM 'FILE'\""},
		"PK\x03\x04\x14":                          {"zip", "unzip -p"},
		"\xff\xfe1\x000\x00":                      {"UTF-16", "iconv"},
		"\xfe\xff\x001\x000":                      {"UTF-16", "iconv"},
		"1\x000\x00.\x000\x00":                    {"UTF-16", "iconv -f UTF-16LE"},
		string(zipped(t, "\xff\xfe1")):            {"UTF-16", "iconv"},
		string(zipped(t, string(zipped(t, "1")))): {"gzip twice", "zcat"},
		good + "\r" + good + "\r":                 {"carriage returns", `tr '\r' '\n'`},
		"access.log" + strings.Repeat("\x00", 247) + "ustar\x0000": {"tar", "tar -xOf"},
	} {
		if _, err := NewReader(strings.NewReader(start)); err == nil || !strings.Contains(err.Error(), words[0]) || !strings.Contains(err.Error(), words[1]) {
			t.Errorf("%q: %v", start, err)
		}
	}
	const name = "BZhang.example.org"
	if _, requests, err := readAll(t, strings.NewReader(strings.Replace(good, "10.0.0.1", name, 1))); err != nil || requests[0].Host != name {
		t.Errorf("%v, %v", requests, err)
	}
}
