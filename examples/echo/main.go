// Command echo limits routes of an echo server, with echo's own adapter echo.WrapMiddleware.
package main

import (
	"flag"
	"log"
	"net/http"

	"github.com/labstack/echo/v4"

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

	e := echo.New()
	e.GET("/", func(c echo.Context) error { return c.String(http.StatusOK, "not limited\n") })
	e.GET("/items/:id", func(c echo.Context) error {
		return c.String(http.StatusOK, "item "+c.Param("id")+"\n")
	}, echo.WrapMiddleware(limits))
	log.Fatal(http.ListenAndServe(*addr, e))
}
