package redistest

import (
	"testing"
	"time"
)

// Eventually waits until a condition holds, and ends the test if it does not within a minute. That is longer than
// anything takes even on a busy machine: a test that fails here has waited for something that does not happen.
//
// holds is called on the test's goroutine, again a millisecond after it has returned false.
func Eventually(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	const patience = time.Minute
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("not within %v: %s", patience, what)
		}
	}
}
