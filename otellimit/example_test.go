package otellimit_test

import (
	"log"

	"github.com/tierlimit/tierlimit/otellimit"
	"github.com/tierlimit/tierlimit/tiered"
)

// This exports the limiter's metrics on the program's global meter provider.
func ExampleRegister() {
	limiter, err := tiered.OpenURL("redis://localhost:6379")
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()

	registration, err := otellimit.Register(limiter)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = registration.Unregister() }()
}
