package httplimit

import (
	"bufio"
	"io"
	"math"
	"net"
	"net/http"
)

// Response is what [Settle] is told of a response.
type Response struct {
	// Status is the status that was sent; 200 if the handler sent none, and 101 if it
	// took the connection over (a websocket).
	Status int
	// Header is the response's header. Do not change it.
	Header http.Header
	// Bytes is the length of the body that the handler wrote, before any compression by
	// a middleware around this one; 0 for what was written to a connection that was
	// taken over.
	Bytes int64
	// Aborted says that the handler panicked.
	Aborted bool
}

// recorder passes a response on as it is written, and notes its status and length.
// http.ResponseController finds everything else through Unwrap.
type recorder struct {
	http.ResponseWriter
	status int
	bytes  int64
}

func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *recorder) WriteHeader(status int) {
	// Informational responses (1xx) come before the one that counts; 101 is it.
	if w.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) Write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p)
	w.bytes += int64(n)
	return n, err
}

// ReadFrom keeps sendfile possible, which io.Copy asks the writer itself for: of a file, or
// of one in an io.LimitedReader. Such a reader also tells how far the copy came if the source
// panics.
func (w *recorder) ReadFrom(source io.Reader) (n int64, err error) {
	limited, ok := source.(*io.LimitedReader)
	if !ok {
		limited = &io.LimitedReader{R: source, N: math.MaxInt64}
	}
	before, returned := limited.N, false
	defer func() {
		if !returned {
			n = before - limited.N
		}
		w.bytes += n
	}()
	n, err = io.Copy(w.ResponseWriter, limited)
	returned = true
	return n, err
}

// Flush and Hijack are for those who ask the writer itself, without
// http.ResponseController.
func (w *recorder) Flush() { _ = w.FlushError() }

func (w *recorder) FlushError() error {
	return http.NewResponseController(w.ResponseWriter).Flush()
}

func (w *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil && w.status == 0 {
		w.status = http.StatusSwitchingProtocols
	}
	return conn, buffered, err
}

func (w *recorder) response(aborted bool) Response {
	status := w.status
	if status == 0 {
		status = http.StatusOK
	}
	return Response{Status: status, Header: w.Header(), Bytes: w.bytes, Aborted: aborted}
}
