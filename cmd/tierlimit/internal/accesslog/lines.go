package accesslog

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"
)

// maxLine is the length of the longest line that is read. The bound keeps a file that is not a log (and
// may have no line end at all) from filling the memory.
const maxLine = 1 << 20

const tooLong = "longer than 1 MiB"

const byteOrderMark = "\xef\xbb\xbf"

// lines splits a log into its lines, or into JSON objects if it consists of objects.
type lines struct {
	in      *bufio.Reader
	gzipped bool
	read    int   // lines returned so far
	err     error // returned by every further call of next

	objects bool // the log consists of objects
	object  []byte
	begins  bool // between objects, a line begins here
}

func openLines(r io.Reader) (lines, error) {
	// The buffer holds exactly the longest line and its line end, so a full buffer without a line end
	// means that the line is too long.
	l := lines{in: bufio.NewReaderSize(r, maxLine+1)}
	magic, err := l.in.Peek(2)
	if err != nil && !errors.Is(err, io.EOF) {
		return lines{}, l.explain(err)
	}
	if string(magic) != gzipMagic[:2] {
		return l, l.begin()
	}
	l.gzipped = true
	unzipped, err := gzip.NewReader(l.in)
	if err != nil {
		return lines{}, l.explain(err)
	}
	l.in = bufio.NewReaderSize(unzipped, maxLine+1)
	return l, l.begin()
}

// gzipMagic is the beginning of a gzip file.
const gzipMagic = "\x1f\x8b\x08"

var (
	// errJoined is the error of plain text that is followed by gzip.
	errJoined = errors.New(`plain text and gzip were joined: use "zcat -f" instead of "cat"`)
	// errBehindGzip is the error of gzip that is followed by anything else.
	errBehindGzip = errors.New(`what follows the gzip data is not gzip, but perhaps plain text, or zeros at the file's end: use "zcat -f", which can read both, instead of "cat"`)
)

type other struct{ magic, what, remedy string }

// begins reports whether a file begins like one of this kind.
func (o other) begins(start []byte) bool {
	return bytes.HasPrefix(start, []byte(o.magic)) && (o.magic != "BZh" || len(start) > 6 && string(start[4:7]) == "1AY")
}

// others are the beginnings of files that are not UTF-8 text, with a command that converts such a file.
var others = []other{
	{"\x28\xb5\x2f\xfd", "compressed with zstd", "zstd -dc"},
	{"\xfd7zXZ\x00", "compressed with xz", "xz -dc"},
	{"BZh", "compressed with bzip2", "bzip2 -dc"},
	{"\x04\x22\x4d\x18", "compressed with lz4", "lz4 -dc"},
	{"\x1f\x9d", "compressed with compress", "gzip -dc"},
	{"PK\x03\x04", "a zip archive", "unzip -p"},
	{"7z\xbc\xaf\x27\x1c", "a 7z archive", "7z x -so"},
	{"PAR1", "a Parquet file", `duckdb -csv -c "FROM 'FILE'"`},
	{"\xff\xfe", "in UTF-16", "iconv -f UTF-16 -t UTF-8"},
	{"\xfe\xff", "in UTF-16", "iconv -f UTF-16 -t UTF-8"},
}

// tarMagic is where a tar archive has the word "ustar".
const tarMagic = 257

// begin skips a byte order mark, which would otherwise be taken for a part of the first line. It
// returns an error if the file is of a kind that contains no readable lines.
func (l *lines) begin() error {
	// An error is ignored here: reading the first line returns it again, and these may be the log's
	// last bytes.
	start, _ := l.in.Peek(len("BZh91AY"))
	if bytes.HasPrefix(start, []byte(byteOrderMark)) {
		_, _ = l.in.Discard(len(byteOrderMark)) // cannot fail: these bytes are in the buffer
	}
	for _, other := range others {
		if other.begins(start) {
			return notText(other.what, other.remedy)
		}
	}
	if l.gzipped && bytes.HasPrefix(start, []byte(gzipMagic)) { // as objects of S3 are that have a Content-Encoding, too
		return notText("compressed with gzip twice", "zcat FILE | zcat")
	}
	if len(start) > 3 && start[0] != 0 && start[1] == 0 && start[2] != 0 && start[3] == 0 { // without a byte order mark
		return notText("in UTF-16", "iconv -f UTF-16LE -t UTF-8")
	}
	if start, _ = l.in.Peek(tarMagic + len("ustar")); len(start) > tarMagic && string(start[tarMagic:]) == "ustar" {
		return notText("a tar archive", "tar -xOf")
	}
	start, _ = l.in.Peek(1 << 16)
	if bytes.Count(start, []byte("\r")) > 1 && bytes.IndexByte(start, '\n') < 0 {
		return notText("one whose lines end in carriage returns alone", `tr '\r' '\n'`)
	}
	l.objects = holdsObjects(start)
	return nil
}

func notText(what, remedy string) error {
	return fmt.Errorf("access log: the file is %s, and only plain text in UTF-8 and gzip can be read: convert it first, for example with: %s", what, remedy)
}

// next returns the next line without its line feed. The line is valid until the next call. If the line
// is too long, whole is false and line is only its beginning.
func (l *lines) next() (line []byte, whole bool, err error) {
	if l.err != nil {
		return nil, false, l.err
	}
	if l.objects {
		return l.nextObject()
	}
	return l.nextLine()
}

func (l *lines) nextLine() (line []byte, whole bool, err error) {
	line, err = l.in.ReadSlice('\n')
	switch {
	case !l.gzipped && holdsGzip(line):
		l.err = l.explain(errJoined)
		return nil, false, l.err
	case !l.gzipped && compression(line) != "":
		l.err = l.explain(fmt.Errorf("plain text was joined with a file that is %s: decompress that file first", compression(line)))
		return nil, false, l.err
	case err == nil:
		l.read++
		return line[:len(line)-1], true, nil
	case errors.Is(err, bufio.ErrBufferFull):
		l.read++
		start := bytes.Clone(line[:maxExcerpt+1])
		l.skipRest()
		return start, false, nil
	case errors.Is(err, io.EOF) && len(line) > 0:
		l.read++
		l.err = io.EOF
		return line, true, nil
	}
	// After a failure, half a line may be left over. It is dropped, because a line that is cut off in
	// its last number would look like a good one.
	l.err = l.explain(err)
	return nil, false, l.err
}

// holdsGzip reports whether a gzip file begins in a line, behind text that has no line end. In quotes it is what a
// client sent.
func holdsGzip(line []byte) bool {
	start := bytes.Index(line, []byte(gzipMagic))
	return start >= 0 && bytes.Count(line[:start], []byte(`"`))%2 == 0
}

// compression says how a file is compressed that begins like a line, or "".
func compression(line []byte) string {
	for _, other := range others {
		if strings.HasPrefix(other.what, "compressed") && other.begins(line) {
			return other.what
		}
	}
	return ""
}

func (l *lines) skipRest() {
	for {
		_, err := l.in.ReadSlice('\n')
		if err == nil {
			return
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			l.err = l.explain(err)
			return
		}
	}
}

// explain returns an error that says what an error of the input means for the log.
func (l *lines) explain(err error) error {
	switch {
	case errors.Is(err, io.EOF):
		return io.EOF
	case l.gzipped && l.read > 0 && errors.Is(err, gzip.ErrHeader):
		return l.explain(errBehindGzip)
	case l.gzipped && errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("access log: the gzip data ended early, after %d complete lines: the file was cut off or is still being written: %w", l.read, err)
	}
	return fmt.Errorf("access log: reading failed after %d complete lines: %w", l.read, err)
}
