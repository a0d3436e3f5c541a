// Command fiber limits a handler of Fiber, which is not built on net/http, by the client's address.
package main

import (
	"flag"
	"log"
	"net/netip"

	"github.com/gofiber/fiber/v2"

	"github.com/tierlimit/tierlimit/examples/frameworks/internal/connect"
	"github.com/tierlimit/tierlimit/httplimit"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "where to listen")
	redis := flag.String("redis", "", "URL of a Redis; without it, the process counts by itself")
	flag.Parse()

	limiter, err := connect.Limiter(*redis)
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	search, err := limiter.Rule("search", limit.PerMinute(3))
	if err != nil {
		log.Fatal(err)
	}
	log.Print(newApp(search).Listen(*addr))
}

func newApp(search *tiered.Rule) *fiber.App {
	app := fiber.New(fiber.Config{DisableStartupMessage: true})
	app.Get("/search", limited(search, address), func(c *fiber.Ctx) error { return c.SendString("found nothing\n") })
	return app
}

// limited applies a rule to requests, and sends clients what httplimit's middleware would send.
func limited(rule *tiered.Rule, key func(*fiber.Ctx) string) fiber.Handler {
	return func(c *fiber.Ctx) error {
		d, err := rule.Allow(c.UserContext(), key(c))
		if err != nil {
			log.Print(err)
			return fiber.ErrServiceUnavailable // an error is not a denial: never answer 429
		}
		decided := httplimit.Decided{Rule: rule, Decision: d}
		for name, value := range httplimit.Fields(httplimit.DraftHeaders, decided) {
			c.Set(name, value)
		}
		if denial, denied := httplimit.Denied(decided); denied {
			c.Set(fiber.HeaderContentType, httplimit.ProblemType)
			return c.Status(denial.Status).Send(denial.Problem())
		}
		return c.Next()
	}
}

// address returns the address of the connection as a key; for IPv6, it is the /64 prefix. Fiber
// overwrites the strings that it returns itself, such as by c.Get, with the next request. A key made
// from such a string must be a copy (strings.Clone), because the limiter keeps it.
func address(c *fiber.Ctx) string {
	ip, _ := netip.AddrFromSlice(c.Context().RemoteIP())
	if key := httplimit.AddressKey(ip); key != "" {
		return key
	}
	return "no address" // all such requests share a quota
}
