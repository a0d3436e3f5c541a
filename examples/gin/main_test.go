package main

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/tierlimit/tierlimit/embedded"
	"github.com/tierlimit/tierlimit/httplimit"
	"github.com/tierlimit/tierlimit/limit"
)

// A limit on failures is charged by the status of gin's own writer.
func TestCostByStatus(t *testing.T) {
	limiter, err := embedded.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer limiter.Close()
	failures := limiter.MustRule("failures", limit.PerHour(1))
	limits, err := httplimit.New(limiter, httplimit.Limit(failures, httplimit.Everyone, httplimit.HandlerCost()))
	if err != nil {
		t.Fatal(err)
	}
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.Use(wrap(limits), func(c *gin.Context) {
		c.Next()
		cost := int64(0)
		if c.Writer.Status() >= http.StatusBadRequest {
			cost = 1
		}
		httplimit.SetCost(c.Request.Context(), cost)
	})
	status := http.StatusOK
	engine.GET("/", func(c *gin.Context) { c.String(status, "x") })
	for _, want := range []int{http.StatusOK, http.StatusOK, http.StatusUnauthorized, http.StatusTooManyRequests} {
		if want == http.StatusUnauthorized {
			status = want
		}
		w := httptest.NewRecorder()
		engine.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		if w.Code != want {
			t.Errorf("status %d, want %d", w.Code, want)
		}
	}
}
