package accesslog

import (
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// good is a line that can be read.
const good = `10.0.0.1 - - [01/Aug/1995:06:00:00 +0000] "GET /a HTTP/1.0" 200 17`

// readAll reads to the end or to an error. At the end, the error is nil.
func readAll(t testing.TB, r io.Reader) (*Reader, []Request, error) {
	t.Helper()
	log, err := NewReader(r)
	if err != nil {
		t.Fatal(err)
	}
	var requests []Request
	for {
		request, err := log.Read()
		if errors.Is(err, io.EOF) {
			return log, requests, nil
		}
		if err != nil {
			return log, requests, err
		}
		requests = append(requests, request)
	}
}

func TestLinesAreCounted(t *testing.T) {
	tests := []struct {
		name             string
		log              string
		good, bad, empty int
	}{
		{"nothing", "", 0, 0, 0},
		{"one line", good + "\n", 1, 0, 0},
		{"no line end at the end", good + "\n" + good, 2, 0, 0},
		{"CRLF", good + "\r\n" + good + "\r\n", 2, 0, 0},
		{"empty lines", "\n" + good + "\n\r\n  \n" + good + "\n\n", 2, 0, 4},
		{"bad line between good ones", good + "\nnonsense\n" + good + "\n", 2, 1, 0},
		{"cut last line", good + "\n" + good[:40], 1, 1, 0},
		{"longest line", good + strings.Repeat("x", maxLine-len(good)) + "\n" + good, 1, 1, 0},
		{"longest line that is good", padded(maxLine) + "\n" + good, 2, 0, 0},
		{"longest line at the end", good + "\n" + padded(maxLine), 2, 0, 0},
		{"too long line", padded(maxLine+1) + "\n" + good, 1, 1, 0},
		{"too long line at the end", good + "\n" + padded(maxLine+1), 1, 1, 0},
		{"much too long line", good + "\n" + padded(5*maxLine+3) + "\n" + good, 2, 1, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			log, requests, err := readAll(t, strings.NewReader(test.log))
			if err != nil {
				t.Fatal(err)
			}
			if len(requests) != test.good || log.BadLines() != test.bad || log.empty != test.empty {
				t.Errorf("%d good, %d bad, %d empty; want %d, %d, %d",
					len(requests), log.BadLines(), log.empty, test.good, test.bad, test.empty)
			}
			if log.Lines() != test.good+test.bad+test.empty {
				t.Errorf("%d lines, want %d", log.Lines(), test.good+test.bad+test.empty)
			}
		})
	}
}

// padded is a good line of the given length.
func padded(length int) string {
	line := good + ` "-" "agent`
	return line + strings.Repeat("x", length-len(line)-1) + `"`
}

func TestFirstBadLinesAreKept(t *testing.T) {
	long := strings.Repeat("y", 2*maxLine)
	log, _, err := readAll(t, strings.NewReader(
		good+"\n\nhello \x1b[31m\xff\n"+long+"\n"+strings.Replace(good, "200", "2x0", 1)+"\nfourth\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []BadLine{
		{"line", 3, `"hello \x1b[31m\xff"`, `neither a time and a key, nor JSON, nor a "[time]" followed by a quoted request`},
		{"line", 4, `"` + long[:100] + `"...`, "longer than 1 MiB"},
		{"line", 5, `"` + strings.Replace(strings.ReplaceAll(good, `"`, `\"`), "200", "2x0", 1) + `"`, `the status after the request is not three digits: "2x0"`},
	}
	got := log.FirstBad()
	if log.BadLines() != 4 || len(got) != len(want) {
		t.Fatalf("%d bad lines, kept %d; want 4, kept %d", log.BadLines(), len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("got  %+v\nwant %+v", got[i], want[i])
		}
	}
	if s := got[2].String(); !strings.HasPrefix(s, "line 5: the status after") {
		t.Errorf("String is %q", s)
	}
}

// What a program writes when it starts does not hide why its requests cannot be read.
func TestOneBadLineOfEachCauseIsKept(t *testing.T) {
	const request = `INFO:     10.0.0.1:4711 - "GET /a HTTP/1.1" 200 OK`
	log, _, err := readAll(t, strings.NewReader("Started\nWaiting\nRunning\n"+request+"\nWaiting\n"+request+"\n{\n[\n"))
	if err != nil || log.BadLines() != 8 {
		t.Fatalf("%v, %d bad lines", err, log.BadLines())
	}
	var causes []string
	for _, bad := range log.FirstBad() {
		causes = append(causes, strconv.Itoa(bad.Number)+" "+bad.Cause)
	}
	want := []string{"1 " + noTime, "4 " + noStamp, "7 " + badJSON}
	if !slices.Equal(causes, want) {
		t.Errorf("%q, want %q", causes, want)
	}
}

func TestReadErrorIsReturnedAndStays(t *testing.T) {
	broken := errors.New("disk on fire")
	in := io.MultiReader(strings.NewReader(good+"\n"+good[:30]), iotest.ErrReader(broken))
	log, requests, err := readAll(t, in)
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "after 1 complete lines") {
		t.Errorf("error is %v", err)
	}
	if len(requests) != 1 || log.BadLines() != 0 {
		t.Errorf("%d requests, %d bad lines; want 1, 0", len(requests), log.BadLines())
	}
	if _, again := log.Read(); again == nil || again.Error() != err.Error() {
		t.Errorf("then %v", again)
	}
	if _, err := NewReader(iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Errorf("NewReader: %v", err)
	}
}

func TestReadErrorInTooLongLine(t *testing.T) {
	broken := errors.New("disk on fire")
	in := io.MultiReader(strings.NewReader(strings.Repeat("x", 2*maxLine)), iotest.ErrReader(broken))
	log, _, err := readAll(t, in)
	if !errors.Is(err, broken) || log.BadLines() != 1 {
		t.Errorf("error is %v after %d bad lines", err, log.BadLines())
	}
}

func TestReaderOfOneByteAtATime(t *testing.T) {
	_, requests, err := readAll(t, iotest.OneByteReader(strings.NewReader(good+"\n"+good)))
	if err != nil || len(requests) != 2 {
		t.Fatalf("%d requests, %v", len(requests), err)
	}
	want := Request{
		Time: time.Date(1995, 8, 1, 6, 0, 0, 0, time.UTC), Host: "10.0.0.1",
		Method: "GET", Path: "/a", Status: 200, Bytes: 17,
	}
	if requests[1] != want {
		t.Errorf("got %+v", requests[1])
	}
}
