package main

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

const (
	slotsGroup = "slots"

	nameSlots     = "tierlimit, slots"
	nameSemaphore = "semaphore in a sorted set"

	// manySlots is more slots than are ever held at the same time.
	manySlots = 10_000
	// slotTTL is the time after which the slots of a dead process are free.
	slotTTL = 10 * time.Second
)

// slotContenders acquire a slot and release it. One decision is both.
var slotContenders = []contender{
	{nameSlots, ours, openSlots},
	{nameSemaphore, peer, openSemaphore},
	{nameTwoReturns, floor, openTwoReturns},
}

func slotGroups(run string) []group {
	return []group{{
		name: slotsGroup, title: "Acquire + Release on one hot key, always free",
		workload: func() workload { return hotKey(run + ":slots") }, reference: nameSemaphore, share: 1, finer: true,
		contenders: slotContenders,
	}}
}

func openSlots(_ context.Context, e environment, _ *workload) (*subject, error) {
	limiter, opened, err := openLimiter(e)
	if err != nil {
		return nil, err
	}
	rule, err := limiter.Rule("slot", limit.Concurrent(manySlots), tiered.SlotTTL(slotTTL))
	if err != nil {
		return nil, errors.Join(err, limiter.Close())
	}
	s := overRedis(acquireAndRelease(rule), limiter.Close)
	s.opened = opened
	return s, nil
}

func acquireAndRelease(rule *tiered.Rule) decide {
	return func(ctx context.Context, key string) (outcome, error) {
		slot, d, err := rule.Acquire(ctx, key, 1)
		switch {
		case err != nil:
			return failed, err
		case slot == nil:
			return denied, nil
		}
		slot.Release()
		if d.Degraded() {
			return degraded, nil
		}
		return allowed, nil
	}
}

// semaphoreScript is the textbook semaphore: a sorted set of the holders, by the time at which their slots end. ARGV
// has the current time and the slot's end, both on the client's clock, the number of slots, and the holder.
const semaphoreScript = `
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ARGV[1])
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[3]) then
  return 0
end
redis.call('ZADD', KEYS[1], ARGV[2], ARGV[4])
return 1
`

// openSemaphore acquires with semaphoreScript and releases with ZREM. Each slot has its own name, so that a process
// can hold several.
func openSemaphore(ctx context.Context, e environment, w *workload) (*subject, error) {
	client, sha, err := loadScript(ctx, e, semaphoreScript)
	if err != nil {
		return nil, err
	}
	const semaphore = "semaphore:"
	process, last := rand.Text()[:8], atomic.Uint64{}
	call := func(ctx context.Context, key string) (outcome, error) {
		key = semaphore + key
		slot, now := process+strconv.FormatUint(last.Add(1), 36), time.Now().UnixMilli()
		n, err := client.EvalSha(ctx, sha, []string{key}, now, now+slotTTL.Milliseconds(), manySlots, slot).Int()
		switch {
		case err != nil:
			return failed, err
		case n == 0:
			return denied, nil
		}
		return reached(client.ZRem(ctx, key, slot).Err())
	}
	s := overRedis(call, func() error { return errors.Join(remove(client, semaphore+w.keys[0]), client.Close()) })
	s.sends = []string{"evalsha", "zrem"}
	return s, nil
}

func remove(client *redis.Client, key string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return client.Del(ctx, key).Err()
}
