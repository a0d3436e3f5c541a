package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
)

// The command prints the address of its page, serves the page, and ends when it is interrupted, even
// while a viewer has the page open.
func TestDemo(t *testing.T) {
	t.Setenv("REDIS_URL", "")
	ctx, interrupt := context.WithCancel(t.Context())
	said, stdout := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, []string{"demo", "-addr", "127.0.0.1:0"}, nil, stdout, io.Discard)
		_ = stdout.Close()
		ended <- err
	}()
	lines := bufio.NewScanner(said)
	var output strings.Builder
	address := ""
	for address == "" && lines.Scan() {
		output.WriteString(lines.Text() + "\n")
		if line, ok := strings.CutPrefix(lines.Text(), "http://"); ok {
			address, _, _ = strings.Cut("http://"+line, " ")
		}
	}
	if !strings.Contains(output.String(), "30969 requests of 2365 keys") || address == "" {
		t.Fatalf("it says %q, and ends with %v", output.String(), <-ended)
	}
	response, err := http.Get(address + "events")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	events := bufio.NewScanner(response.Body)
	if !events.Scan() || !strings.HasPrefix(events.Text(), "data: ") {
		t.Error(events.Text(), events.Err())
	}
	interrupt()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
