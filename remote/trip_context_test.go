package remote

import (
	"context"
	"errors"
	"testing"
)

// A trip's context ends once, whether Done is first called before or after the end.
func TestTripContextEnds(t *testing.T) {
	for _, when := range []string{"before", "after"} {
		c := newTripContext(localTime() + 1_000_000)
		if by, ok := c.Deadline(); !ok || by.IsZero() {
			t.Fatalf("a trip's context has the deadline %v, %v", by, ok)
		}
		if when == "before" {
			select {
			case <-c.Done():
				t.Fatal("the channel is closed before the context has ended")
			default:
			}
		}
		if err := c.Err(); err != nil {
			t.Fatalf("the context has not ended, and its error is %v", err)
		}
		c.end()
		c.end()
		select {
		case <-c.Done():
		default:
			t.Errorf("the context has ended, and its channel, asked for %s that, is not closed", when)
		}
		if err := c.Err(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the context has ended, and its error is %v", err)
		}
	}
}
