package httplimit

import (
	"bufio"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
)

// Response describes a response to the function of [Settle].
type Response struct {
	// Status is the status that was sent; 200 if the handler sent none, 101 if it took the
	// connection over (a websocket), and 500 if it panicked before anything was sent.
	Status int
	// Header is the response's header. Do not change it.
	Header http.Header
	// Bytes is the length of the body that the handler wrote, before any compression by a
	// middleware around this one; data written to a connection that was taken over does not count.
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
	w.ResponseWriter.WriteHeader(status) // panics if there is no such status
	// Informational responses (1xx) precede the final one, but 101 is final.
	if w.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		w.status = status
	}
}

func (w *recorder) Write(p []byte) (int, error) {
	w.sendsHeader()
	n, err := w.ResponseWriter.Write(p)
	w.bytes += int64(n)
	return n, err
}

// sendsHeader notes that status 200 is sent, unless another one was.
func (w *recorder) sendsHeader() {
	if w.status == 0 {
		w.status = http.StatusOK
	}
}

// ReadFrom keeps sendfile possible, for which io.Copy uses the writer's own ReadFrom: for a file,
// or a file in an io.LimitedReader. Such a reader also shows how far the copy came if the source
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
		if w.bytes += n; n > 0 {
			w.sendsHeader()
		}
	}()
	n, err = io.Copy(w.ResponseWriter, limited)
	returned = true
	return n, err
}

// Flush and Hijack are for callers that use the writer's interfaces, without
// http.ResponseController.
func (w *recorder) Flush() { _ = w.FlushError() }

func (w *recorder) FlushError() error {
	err := http.NewResponseController(w.ResponseWriter).Flush()
	if !errors.Is(err, http.ErrNotSupported) { // else nothing was sent: the handler may still choose a status
		w.sendsHeader()
	}
	return err
}

func (w *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil && w.status == 0 {
		w.status = http.StatusSwitchingProtocols
	}
	return conn, buffered, err
}

// CloseNotify is for gin, whose Context.Stream panics if the writer does not have it. If none of the
// wrapped writers has it either, the channel stays silent.
func (w *recorder) CloseNotify() <-chan bool {
	for writer := w.ResponseWriter; ; {
		switch inner := writer.(type) {
		case interface{ CloseNotify() <-chan bool }: // http.CloseNotifier, which is deprecated
			return inner.CloseNotify()
		case interface{ Unwrap() http.ResponseWriter }:
			writer = inner.Unwrap()
		default:
			return make(chan bool)
		}
	}
}

func (w *recorder) response(aborted bool) Response {
	status := w.status
	switch {
	case status != 0:
	case aborted: // what a middleware that recovers the panic sends; else nothing is sent
		status = http.StatusInternalServerError
	default:
		status = http.StatusOK
	}
	return Response{Status: status, Header: w.Header(), Bytes: w.bytes, Aborted: aborted}
}
