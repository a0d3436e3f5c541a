package state

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// Key is what Redis holds under one key, at one instant.
type Key struct {
	Clock   int64         // Redis's, in µs
	Expires time.Duration // from then on; negative: never, which this library does not write
	State   *State        // nil: Redis holds nothing
}

// Read reads a key by plain commands that change nothing. window is as for [Decode]. The error
// wraps [ErrUnknown] or [ErrDamaged], or is Redis's.
func Read(ctx context.Context, node *redis.Client, key string, window int64) (Key, error) {
	pipe := node.TxPipeline()
	clock, text, ttl := pipe.Time(ctx), pipe.Get(ctx, key), pipe.PTTL(ctx, key)
	if _, err := pipe.Exec(ctx); err != nil && text.Err() == nil || clock.Err() != nil || ttl.Err() != nil {
		return Key{}, errors.Join(err, clock.Err())
	}
	k := Key{Clock: clock.Val().UnixMicro(), Expires: ttl.Val()}
	value, err := text.Bytes()
	switch {
	case errors.Is(err, redis.Nil):
		return k, nil
	case redis.HasErrorPrefix(err, "WRONGTYPE"):
		k.State, err = readSortedSet(ctx, node, key, k.Clock, window)
	case err == nil:
		k.State, err = Decode(value, k.Clock, window)
	}
	if k.State != nil && k.State.Algorithm == "fixed-window" {
		k.endsWithExpiry()
	}
	return k, err
}

// endsWithExpiry takes the window of a fixed window that does not say it from the key's expiry,
// which is the end of the window.
func (k *Key) endsWithExpiry() {
	for i := range k.State.Units {
		if u := &k.State.Units[i]; u.LeavesUntil == 0 && k.Expires > 0 {
			u.LeavesFrom = k.State.Now + k.Expires.Microseconds()
			u.LeavesUntil = u.LeavesFrom
		}
	}
}

func readSortedSet(ctx context.Context, node *redis.Client, key string, clock, window int64) (*State, error) {
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
