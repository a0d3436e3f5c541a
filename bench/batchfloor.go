package main

import (
	"context"
	"runtime"
	"slices"
	"sync"
)

// plainBatch is plainGCRA for several keys in one call. They share the clock, and what every call costs.
const plainBatch = `
local time = redis.call('TIME')
local now, interval, burst = time[1] * 1000000 + time[2], tonumber(ARGV[1]), tonumber(ARGV[2])
local verdicts = {}
for i, key in ipairs(KEYS) do
  local arrival = math.max(now, tonumber(redis.call('GET', key) or 0)) + interval
  if arrival - now > burst then
    verdicts[i] = 0
  else
    redis.call('SET', key, string.format('%.0f', arrival), 'PX', math.ceil((arrival - now) / 1000))
    verdicts[i] = 1
  end
end
return verdicts
`

// openPlainBatches is group commit of plainBatch and nothing else, with a number of trips at a time. It has no deadline,
// no record for outages, no memory of denials and no statistics, so it shows what sharing trips brings by itself.
func openPlainBatches(trips int) opener {
	return func(ctx context.Context, e environment, w *workload) (*subject, error) {
		client, sha, err := loadScript(ctx, e, plainBatch)
		if err != nil {
			return nil, err
		}
		interval := w.gcra.Window().Microseconds() / w.gcra.Quota()
		b := &plainBatches{trips: trips, send: func(ctx context.Context, keys []string) ([]int64, error) {
			return client.EvalSha(ctx, sha, keys, interval, interval*w.gcra.Burst()).Int64Slice()
		}}
		return overRedis(b.decide, client.Close), nil
	}
}

type plainBatches struct {
	send  func(ctx context.Context, keys []string) ([]int64, error)
	trips int // at most as many at a time

	mu       sync.Mutex
	waiting  []*batchedCall
	inFlight int
}

// batchedCall is a call that waits for a trip.
type batchedCall struct {
	key     string
	elected bool // to lead a trip, and does not yet
	verdict int64
	err     error
	wake    chan bool // true: it leads a trip; false: it has its answer
}

var batchedCalls = sync.Pool{New: func() any { return &batchedCall{wake: make(chan bool, 2)} }}

func (b *plainBatches) decide(ctx context.Context, key string) (outcome, error) {
	c := batchedCalls.Get().(*batchedCall)
	defer batchedCalls.Put(c)
	c.key = "batch:" + key
	b.mu.Lock()
	b.waiting = append(b.waiting, c)
	leads := b.inFlight < b.trips
	if leads {
		b.inFlight++
	}
	b.mu.Unlock()
	for leads || <-c.wake {
		leads = false
		b.lead(ctx, c)
	}
	if c.err != nil {
		return failed, c.err
	}
	return verdict(c.verdict == 1), nil
}

// lead makes a trip for the waiting calls, and passes its place on to one of those that wait by then.
func (b *plainBatches) lead(ctx context.Context, leader *batchedCall) {
	runtime.Gosched() // callers that were just answered may ask again
	b.mu.Lock()
	leader.elected = false
	n := len(b.waiting)
	if b.inFlight < b.trips {
		n = (n + 1) / 2 // the other half is for another trip
	}
	calls := slices.Clone(b.waiting[:n])
	b.waiting = slices.Delete(b.waiting, 0, n)
	b.mu.Unlock()
	if n > 0 {
		keys := make([]string, n)
		for i, c := range calls {
			keys[i] = c.key
		}
		verdicts, err := b.send(ctx, keys)
		for i, c := range calls {
			if c.err = err; err == nil {
				c.verdict = verdicts[i]
			}
			c.wake <- false
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range slices.Backward(b.waiting) {
		if !c.elected {
			c.elected = true
			c.wake <- true
			return
		}
	}
	b.inFlight--
}
