package redistest

import (
	"fmt"
	"time"
)

// poll calls ready until it returns nil. After the time within, poll gives up and returns the last error of ready.
func poll(within time.Duration, ready func() error) error {
	deadline := time.Now().Add(within)
	for {
		err := ready()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not ready after %v: %w", within, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
