// The stand-in for Redis needs a 64-bit platform.

//go:build !(386 || arm || mips || mipsle)

package embedded_test

import (
	"context"
	"fmt"
	"log"

	"github.com/tierlimit/tierlimit/embedded"
	"github.com/tierlimit/tierlimit/limit"
)

func ExampleOpen() {
	limiter, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	search := limiter.MustRule("search", limit.PerMinute(2))
	for range 3 {
		d, err := search.Allow(context.Background(), "user 17")
		fmt.Println(d.Allowed, d.Remaining, err)
	}
	// Output:
	// true 1 <nil>
	// true 0 <nil>
	// false 0 <nil>
}
