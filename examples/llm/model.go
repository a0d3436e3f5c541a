package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// startModel starts a stand-in for a language model, on a port of this machine. It streams the words of
// the prompt over and over as server-sent events, with a pause before each. It refuses an empty prompt.
func startModel(pause time.Duration) (url string, stop func(), err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /complete", func(w http.ResponseWriter, r *http.Request) {
		prompt, err := io.ReadAll(r.Body)
		words := strings.Fields(string(prompt))
		most, err2 := mostTokens(r.URL.Query())
		if err != nil || err2 != nil || len(words) == 0 {
			http.Error(w, "no prompt", http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		out := http.NewResponseController(w)
		for i := range most {
			select {
			case <-time.After(pause):
			case <-r.Context().Done():
				return
			}
			fmt.Fprintf(w, "data: %s\n\n", words[i%int64(len(words))])
			if out.Flush() != nil {
				return
			}
		}
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(listener) }()
	return "http://" + listener.Addr().String(), func() { _ = server.Close() }, nil
}
