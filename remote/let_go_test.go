package remote

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"
	"weak"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// Law 7: once a call has failed, nothing refers to its caller's context any more, which may keep a whole request.
func TestLaw7ContextsOfFailedCallsAreLetGo(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		b, _ := newBatcher(t, bubble.Client(t), func(o *Options) { o.Deadline, o.Inline = 50*time.Millisecond, true })
		e := Entry{Key: "k", Rule: newRule(t, limit.PerHour(1_000_000), limit.GCRA()), Cost: 1}
		mustDecide(t, b, e)
		bubble.Late.Store(int64(time.Second))
		type key struct{}
		type request [1 << 10]byte
		requests := make([]weak.Pointer[request], 900)
		var calls sync.WaitGroup
		for i := range requests {
			calls.Go(func() {
				r := new(request)
				requests[i] = weak.Make(r)
				e := e
				e.Cost = int64(1 + i%300)
				if _, err := b.Decide(context.WithValue(t.Context(), key{}, r), e); err == nil {
					t.Error("a decision without an answer")
				}
			})
			if i%300 == 0 {
				time.Sleep(10 * time.Millisecond)
			}
		}
		calls.Wait()
		bubble.Late.Store(0)
		time.Sleep(2 * time.Second)
		mustDecide(t, b, e)
		runtime.GC()
		runtime.GC()
		kept := 0
		for _, r := range requests {
			if r.Value() != nil {
				kept++
			}
		}
		if kept > 0 {
			t.Errorf("the contexts of %d failed calls are kept", kept)
		}
	})
}

// The same is true of calls that came while others were put on a trip.
func TestLaw7AnArrayForReuseHasNoCalls(t *testing.T) {
	rule := newRule(t, limit.PerHour(10), limit.GCRA())
	first, second := waitingGroup(rule, 1), waitingGroup(rule, 1)
	var q queue
	q.add(second)
	array := q.putFirst(queue{calls: []*call{first}, entries: 1})
	if array[:1][0] != nil || q.len() != 2 || q.calls[0] != first || q.calls[1] != second {
		t.Errorf("%v is for reuse, and %v waits", array[:1], q.calls)
	}
}
