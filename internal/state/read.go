package state

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// Key is the content of one key in Redis, at one instant.
type Key struct {
	Clock   int64         // Redis's clock, in µs
	Expires time.Duration // counted from Clock; negative: never, which this library does not write
	State   *State        // nil: Redis holds nothing
}

// Result is a [Key], or the error of reading it. Err wraps [ErrUnknown] or [ErrDamaged], or is an error
// from Redis.
type Result struct {
	Key
	Err error
}

// Read reads a key with plain commands that change nothing. window is as for [Decode].
func Read(ctx context.Context, node redis.Cmdable, key string, window int64) (Key, error) {
	all, err := ReadAll(ctx, node, []string{key}, []int64{window})
	if err != nil {
		return Key{}, err
	}
	return all[0].Key, all[0].Err
}

// ReadAll reads keys in one trip; each sorted set takes another trip. windows has a window for each key, as
// for [Decode]. The error is that of the trip.
func ReadAll(ctx context.Context, node redis.Cmdable, keys []string, windows []int64) ([]Result, error) {
	pipe := node.Pipeline()
	clock, texts, lives := pipe.Time(ctx), make([]*redis.StringCmd, len(keys)), make([]*redis.DurationCmd, len(keys))
	for i, key := range keys {
		texts[i], lives[i] = pipe.Get(ctx, key), pipe.PTTL(ctx, key)
	}
	// A problem with one key is the error of its command. If the trip fails, there is no clock.
	if _, err := pipe.Exec(ctx); clock.Val().IsZero() {
		return nil, err
	}
	results := make([]Result, len(keys))
	for i, key := range keys {
		results[i] = Result{Key: Key{Clock: clock.Val().UnixMicro(), Expires: lives[i].Val()}}
		results[i].Err = cmp.Or(results[i].read(ctx, node, key, texts[i], windows[i]), lives[i].Err())
	}
	return results, nil
}

func (k *Key) read(ctx context.Context, node redis.Cmdable, key string, text *redis.StringCmd, window int64) error {
	value, err := text.Bytes()
	switch {
	case errors.Is(err, redis.Nil):
		return nil
	case redis.HasErrorPrefix(err, "WRONGTYPE"):
		k.State, err = readSortedSet(ctx, node, key, k.Clock, window)
	case err == nil:
		k.State, err = Decode(value, k.Clock, window)
	}
	return err
}

func readSortedSet(ctx context.Context, node redis.Cmdable, key string, clock, window int64) (*State, error) {
	scored, err := node.ZRangeWithScores(ctx, key, 0, -1).Result()
	if redis.HasErrorPrefix(err, "WRONGTYPE") {
		return nil, fmt.Errorf("%w: it is neither a string nor a sorted set", ErrUnknown)
	} else if err != nil {
		return nil, err
	}
	members := make([]Member, len(scored))
	for i, z := range scored {
		name, _ := z.Member.(string)
		members[i] = Member{Name: name, Score: z.Score}
	}
	return DecodeSortedSet(members, clock, window)
}
