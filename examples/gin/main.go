// Command gin limits routes of a gin engine. A few lines turn a middleware of net/http into one of gin.
package main

import (
	"flag"
	"log"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/tierlimit/tierlimit/examples/internal/connect"
	"github.com/tierlimit/tierlimit/httplimit"
	"github.com/tierlimit/tierlimit/limit"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "where to listen")
	redis := flag.String("redis", "", "URL of a Redis; without it, a stand-in inside the process")
	flag.Parse()

	limiter, stop, err := connect.Limiter(*redis)
	if err != nil {
		log.Fatal(err)
	}
	defer stop()
	items, err := limiter.Rule("items", limit.PerMinute(3))
	if err != nil {
		log.Fatal(err)
	}
	limits, err := httplimit.New(limiter, httplimit.Limit(items, httplimit.ClientAddress))
	if err != nil {
		log.Fatal(err)
	}

	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.GET("/", func(c *gin.Context) { c.String(http.StatusOK, "not limited\n") })
	engine.GET("/items/:id", wrap(limits), func(c *gin.Context) {
		c.String(http.StatusOK, "item %s\n", c.Param("id"))
	})
	log.Fatal(http.ListenAndServe(*addr, engine))
}

// wrap turns a middleware of net/http into one of gin. Handlers of gin write to gin's own writer, so
// httplimit.Settle would see neither the status nor the body: use httplimit.HandlerCost instead.
func wrap(middleware func(http.Handler) http.Handler) gin.HandlerFunc {
	return func(c *gin.Context) {
		passed := false
		next := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			passed, c.Request = true, r
			c.Next()
		})
		middleware(next).ServeHTTP(c.Writer, c.Request)
		if !passed {
			c.Abort()
		}
	}
}
