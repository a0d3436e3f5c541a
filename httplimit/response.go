package httplimit

import (
	"bufio"
	"cmp"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
)

// Response describes a response to the function of [Settle].
type Response struct {
	// Status is the status that was sent. It is 200 if the handler sent none, 101 if the handler took
	// over the connection (a websocket), and 500 if the handler panicked before anything was sent.
	Status int
	// Header is the response's header. Do not change it.
	Header http.Header
	// Bytes is the length of the body that the handler wrote, before any compression by a middleware
	// around this one. Data written to a connection that was taken over does not count. The body of a
	// response to HEAD counts, if the handler writes it, although it is not sent.
	Bytes int64
	// Aborted reports whether the handler panicked.
	Aborted bool
}

// recorder passes a response on as it is written, and records its status and length.
// http.ResponseController finds all other features of the writer through Unwrap.
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

// WriteString spares io.WriteString a copy of the string.
func (w *recorder) WriteString(text string) (int, error) {
	w.sendsHeader()
	n, err := io.WriteString(w.ResponseWriter, text)
	w.bytes += int64(n)
	return n, err
}

// sendsHeader records that status 200 is sent, unless another status was sent before.
func (w *recorder) sendsHeader() { w.status = cmp.Or(w.status, http.StatusOK) }

// ReadFrom keeps sendfile possible. io.Copy uses sendfile through the writer's own ReadFrom, for a file
// or for a file in an io.LimitedReader. The LimitedReader also shows how far the copy came if the
// source panics, and whether there was anything to write, which sends the header even if the write fails.
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
		if w.bytes += n; limited.N < before {
			w.sendsHeader()
		}
	}()
	n, err = io.Copy(w.ResponseWriter, limited)
	returned = true
	return n, err
}

// Flush and Hijack are for callers that use the writer's interfaces instead of http.ResponseController.
func (w *recorder) Flush() { _ = w.FlushError() }

func (w *recorder) FlushError() error {
	err := http.NewResponseController(w.ResponseWriter).Flush()
	if !errors.Is(err, http.ErrNotSupported) { // otherwise nothing was sent: the handler may still choose a status
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
// wrapped writers has it either, nothing is ever sent on the channel.
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
	status := cmp.Or(w.status, http.StatusOK)
	if w.status == 0 && aborted { // a middleware that recovers the panic sends 500; without one, nothing is sent
		status = http.StatusInternalServerError
	}
	return Response{Status: status, Header: w.Header(), Bytes: w.bytes, Aborted: aborted}
}
