package serve

import (
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

// Clients over HTTP that keep their connections are told to go elsewhere before the service ends, and get answers to
// all requests until then.
func TestClientsOverHTTPLeave(t *testing.T) { // not in parallel: a client that is late by 250 ms counts as gone
	server := start(t, "domain: d\ndescriptors: [{key: k, rate_limit: {unit: year, requests_per_unit: 1000000}}]")
	url := "http://" + server.Addr("http").String() + "/json"
	var answered atomic.Int64
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			for {
				time.Sleep(5 * time.Millisecond) // the connection is idle at nearly all times
				answer, err := client.Post(url, "application/json", strings.NewReader(`{"domain": "d", "descriptors": [{"entries": [{"key": "k", "value": "v"}]}]}`))
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, answer.Body)
				_ = answer.Body.Close()
				if answer.StatusCode != http.StatusOK {
					t.Error(answer.Status)
				}
				answered.Add(1)
				if answer.Close {
					return
				}
			}
		})
	}
	redistest.Eventually(t, "all have connected", func() bool { return answered.Load() > 40 })
	server.Close()
	callers.Wait()
}

// Connections that never sent a request, such as those that a client has opened in advance, do not delay the end.
func TestEndWithConnectionsWithoutRequests(t *testing.T) {
	t.Parallel()
	server := start(t, shop)
	silent, err := net.Dial("tcp", server.Addr("http").String())
	must(t, err)
	defer silent.Close()
	if code, _ := get(t, server, "http", "/healthcheck"); code != http.StatusOK { // the silent connection has been accepted before
		t.Fatal(code)
	}
	began := time.Now()
	server.Close()
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("it took %v", took)
	}
}
