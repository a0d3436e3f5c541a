package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/httplimit"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiertest"
)

func TestRequestsAboveTheLimitAreDenied(t *testing.T) {
	limiter, clock := tiertest.New(t)
	app := newApp(limiter.MustRule("search", limit.PerMinute(2)))
	get := func() (*http.Response, string) {
		t.Helper()
		response, err := app.Test(httptest.NewRequest(http.MethodGet, "/search", nil), -1)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response, string(body)
	}
	for range 2 {
		for _, left := range []string{"1", "0"} {
			response, body := get()
			if response.StatusCode != http.StatusOK || body != "found nothing\n" || !strings.HasPrefix(response.Header.Get("RateLimit"), `"search";r=`+left) {
				t.Errorf("%d %q %v", response.StatusCode, body, response.Header)
			}
			if policy := response.Header.Get("RateLimit-Policy"); policy != `"search";q=2;w=60` {
				t.Errorf("policy %s", policy)
			}
		}
		response, body := get()
		if response.StatusCode != http.StatusTooManyRequests || response.Header.Get("Retry-After") != "60" ||
			response.Header.Get("Content-Type") != httplimit.ProblemType || !strings.Contains(body, `"violated-policies":["search"]`) {
			t.Errorf("%d %q %v", response.StatusCode, body, response.Header)
		}
		clock.Advance(time.Minute)
	}
	if err := limiter.Close(); err != nil {
		t.Fatal(err)
	}
	if response, _ := get(); response.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("after the limiter was closed: %d", response.StatusCode)
	}
}
