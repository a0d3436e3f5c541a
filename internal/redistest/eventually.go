package redistest

import (
	"testing"
	"time"
)

// Eventually waits until a condition holds, and ends the test if it does not within a minute.
// That is longer than anything takes on a machine that is busy with other things: a test that
// fails here has waited for something that does not come.
//
// holds is called on the test's goroutine, a millisecond after it has said no.
func Eventually(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	const patience = time.Minute
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("not within %v: %s", patience, what)
		}
	}
}
