package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"
)

const ms = 1000 // µs

// Law 7: time-outs count as failures of Redis, with two exceptions: they are noticed so late that this process must
// have been paused, or a little late while Redis answers other trips.
func TestBlame(t *testing.T) {
	b := &Batcher{opt: Options{Deadline: 50 * time.Millisecond}}
	other := errors.New("refused")
	for _, c := range []struct {
		err        error
		took       int64
		lastAnswer time.Duration // time since it
		blamed     bool
	}{
		{ErrNoAnswer, 50 * ms, time.Hour, true},
		{ErrNoAnswer, 51 * ms, 0, true},
		{ErrNoAnswer, 60 * ms, 0, false},
		{ErrNoAnswer, 60 * ms, time.Hour, true},
		{ErrNoAnswer, 80 * ms, time.Hour, false},
		{fmt.Errorf("%w: %w", ErrNoAnswer, &net.OpError{Op: "write", Err: os.ErrDeadlineExceeded}), 50 * ms, 0, false},
		{fmt.Errorf("%w: %w", ErrNoAnswer, &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}), 50 * ms, 0, true},
		{other, 80 * ms, 0, true},
		{context.DeadlineExceeded, 80 * ms, 0, true},
	} {
		b.lastAnswer.Store(localTime() - c.lastAnswer.Microseconds())
		if got := b.blame(c.err, c.took); (got != nil) != c.blamed {
			t.Errorf("%v after %d µs, an answer %v ago: %v", c.err, c.took, c.lastAnswer, got)
		}
	}
}
