package tiered

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

// loadSlowly is a hook that makes the loading of the script take some time.
type loadSlowly struct {
	take          atomic.Int64 // a time.Duration
	begun, inside atomic.Int64
}

func (*loadSlowly) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *loadSlowly) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if name := cmd.Name(); name == "script" || name == "function" {
			h.begun.Add(1)
			h.inside.Add(1)
			defer h.inside.Add(-1)
			time.Sleep(time.Duration(h.take.Load()))
		}
		return next(ctx, cmd)
	}
}

func (*loadSlowly) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// Law 12: Close also waits for a loading of the script that a background goroutine begins while Close waits for
// that goroutine.
func TestLaw12CloseWaitsForALoading(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		client, slowly := bubble.Client(t), &loadSlowly{}
		client.AddHook(slowly)
		l := newLimiterOn(t, client, redistest.Prefix())
		slowly.take.Store(int64(200 * time.Millisecond))
		before := slowly.begun.Load()
		l.background.Go(func() {
			<-l.ctx.Done()
			time.Sleep(time.Millisecond)
			l.script.Prepare(l.ctx)
		})
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if begun, inside := slowly.begun.Load()-before, slowly.inside.Load(); begun == 0 || inside != 0 {
			t.Errorf("%d loadings had begun, %d have not ended after Close", begun, inside)
		}
	})
}
