package livepage_test

import (
	"log"
	"net/http"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/livepage"
	"github.com/tierlimit/tierlimit/tiered"
)

// The page is served at an address of its own, which only operators can reach.
func Example() {
	limiter, err := tiered.Open(&redis.UniversalOptions{Addrs: []string{"127.0.0.1:6379"}})
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()

	page, err := livepage.New(limiter, livepage.HottestKeys(), livepage.HashKeys([]byte("the fleet's own secret")))
	if err != nil {
		log.Fatal(err)
	}
	defer page.Close()
	operators := http.NewServeMux()
	operators.Handle("/debug/tierlimit/", page)
	log.Fatal(http.ListenAndServe("127.0.0.1:8081", operators))
}
