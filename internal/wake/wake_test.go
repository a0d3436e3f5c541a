package wake

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Work runs at once, after each pause that it asked for, and otherwise when it is woken. However often the signal
// was sent meanwhile, it is woken once. During a pause it is not woken.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSignal()
		var runs, pause atomic.Int64
		pause.Store(int64(time.Second))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			s.Run(ctx, func() time.Duration { runs.Add(1); return time.Duration(pause.Load()) })
			close(ended)
		}()
		expect := func(what string, want int64) {
			t.Helper()
			if synctest.Wait(); runs.Load() != want {
				t.Errorf("%s: it has run %d times, want %d", what, runs.Load(), want)
			}
		}
		expect("at once", 1)
		for range 3 {
			s.Send()
		}
		expect("sent in a pause", 1)
		pause.Store(0)
		time.Sleep(time.Second)
		expect("after the pause, and once for the signals", 3)
		time.Sleep(time.Hour)
		expect("not sent", 3)
		s.Send()
		expect("sent", 4)
		cancel()
		<-ended
	})
}
