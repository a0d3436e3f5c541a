package accesslog

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

func zipped(t testing.TB, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestGzip(t *testing.T) {
	log, requests, err := readAll(t, bytes.NewReader(zipped(t, good+"\n\nbad\n"+good)))
	if err != nil || len(requests) != 2 || log.BadLines() != 1 {
		t.Errorf("%d requests, %d bad, %v; want 2, 1, nil", len(requests), log.BadLines(), err)
	}
}

// Rotated logs that were joined again are a sequence of gzip members.
func TestGzipOfManyMembers(t *testing.T) {
	var both []byte
	for _, part := range []string{good + "\n" + good[:20], good[20:] + "\n", "", good} {
		both = append(both, zipped(t, part)...)
	}
	_, requests, err := readAll(t, bytes.NewReader(both))
	if err != nil || len(requests) != 3 {
		t.Errorf("%d requests, %v; want 3, nil", len(requests), err)
	}
}

// "cat access.log*" joins plain and gzipped parts, which zcat -f would have made plain.
func TestGzipJoinedWithPlainText(t *testing.T) {
	plain := good + "\n"
	for name, parts := range map[string][]string{
		"gzip last":   {plain, string(zipped(t, plain))},
		"gzip first":  {string(zipped(t, plain)), plain},
		"gzip inside": {plain, string(zipped(t, plain)), plain},
		"no line end": {plain, good, string(zipped(t, plain))},
		"zeros":       {string(zipped(t, plain)), strings.Repeat("\x00", 512)},
	} {
		_, requests, err := readAll(t, strings.NewReader(strings.Join(parts, "")))
		if len(requests) != 1 || err == nil || !strings.Contains(err.Error(), "zcat -f") {
			t.Errorf("%s: %d requests, %v", name, len(requests), err)
		}
		if name == "zeros" && (err == nil || !strings.Contains(err.Error(), "zeros at the file's end")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What a client sent, in quotes, does not make a log a joined one.
func TestQuotedBeginningOfGzip(t *testing.T) {
	log, requests, err := readAll(t, strings.NewReader(good+" \"-\" \"\x1f\x8b\x08\"\n"+good))
	if err != nil || len(requests) != 2 || log.BadLines() != 0 {
		t.Errorf("%d requests, %v, %v", len(requests), log.FirstBad(), err)
	}
}

func TestPlainTextJoinedWithOtherCompression(t *testing.T) {
	for magic, what := range map[string]string{"\x28\xb5\x2f\xfd": "zstd", "\xfd7zXZ\x00": "xz", "BZh91AY&SY": "bzip2"} {
		_, requests, err := readAll(t, strings.NewReader(good+"\n"+magic+"\x04\n"+good))
		if len(requests) != 1 || err == nil || !strings.Contains(err.Error(), "joined with a file that is compressed with "+what) {
			t.Errorf("%s: %d requests, %v", what, len(requests), err)
		}
	}
}

func TestGzipCutAnywhere(t *testing.T) {
	var text strings.Builder
	for i := range 60 {
		fmt.Fprintf(&text, "10.0.0.%d - - [01/Aug/1995:06:00:00 +0000] \"GET /%d HTTP/1.0\" 200 %d\n", i%250, i*7919, i*104729)
	}
	_, all, err := readAll(t, strings.NewReader(text.String()))
	if err != nil || len(all) != 60 {
		t.Fatalf("%d requests, %v", len(all), err)
	}
	whole := zipped(t, text.String())
	read := 0
	for cut := 2; cut < len(whole); cut++ {
		log, err := NewReader(bytes.NewReader(whole[:cut]))
		for i := 0; err == nil; i++ {
			var request Request
			if request, err = log.Read(); err == nil && request != all[i] {
				t.Fatalf("cut at %d: request %d is %+v, want %+v", cut, i, request, all[i])
			}
			read = i
		}
		if !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(err.Error(), "gzip data ended early") {
			t.Fatalf("cut at %d of %d: %v", cut, len(whole), err)
		}
		if log != nil && log.BadLines() > 0 {
			t.Fatalf("cut at %d: bad line %v", cut, log.FirstBad())
		}
	}
	if read != 60 {
		t.Errorf("cut in its checksum it gave %d requests, want all 60", read)
	}
}

func TestDamagedGzip(t *testing.T) {
	data := zipped(t, good+"\n")
	data[len(data)-5] ^= 1 // in the checksum
	_, requests, err := readAll(t, bytes.NewReader(data))
	if !errors.Is(err, gzip.ErrChecksum) || len(requests) != 1 {
		t.Errorf("%d requests, %v; want 1 and %v", len(requests), err, gzip.ErrChecksum)
	}
	if _, err := NewReader(strings.NewReader("\x1f\x8bno gzip at all")); !errors.Is(err, gzip.ErrHeader) {
		t.Errorf("NewReader: %v, want %v", err, gzip.ErrHeader)
	}
}
