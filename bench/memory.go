package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/redis/go-redis/v9"
)

// memory is how much memory one key of a limit of 1,000 per hour takes in Redis. Measuring it also tests the subject,
// which must grant that many units and no more.
type memory struct {
	subject string
	keys    int     // keys in Redis for one key of the user
	one     float64 // bytes by MEMORY USAGE after one granted unit
	full    float64 // the same after all units were granted
}

func (m memory) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]any{
		"subject": m.subject, "redis_keys": m.keys, "redis_bytes_one_unit": m.one, "redis_bytes_used_up": m.full,
	})
}

func measureMemory(ctx context.Context, control *redis.Client, s *subject, w *workload) (m memory, err error) {
	m.subject = s.name
	key := w.keys[0]
	err = grantAll(ctx, s, w, func() (err error) {
		m.keys, m.one, err = bytesOf(ctx, control, key)
		return err
	})
	if err != nil {
		return m, err
	}
	m.keys, m.full, err = bytesOf(ctx, control, key)
	return m, err
}

// grantAll uses up the limit and makes a few more requests. After the first granted unit, it calls first.
func grantAll(ctx context.Context, s *subject, w *workload, first func() error) error {
	quota, granted := int(w.window.Quota()), 0
	for range quota + 10 {
		o, err := s.decides[0](ctx, w.keys[0])
		switch {
		case err != nil:
			return err
		case o == allowed:
			granted++
		case o != denied:
			return fmt.Errorf("a decision was %v", o)
		}
		if o == allowed && granted == 1 {
			if err := first(); err != nil {
				return err
			}
		}
	}
	// Under GCRA a unit or two become free while this loop runs.
	if granted < quota || granted > quota+2 {
		return fmt.Errorf("it granted %d of %d", granted, quota)
	}
	return nil
}

// bytesOf returns the sum of MEMORY USAGE over the keys whose names contain the given key.
func bytesOf(ctx context.Context, control *redis.Client, key string) (keys int, bytes float64, err error) {
	names := control.Scan(ctx, 0, "*"+key+"*", 1000).Iterator()
	for names.Next(ctx) {
		n, err := control.MemoryUsage(ctx, names.Val()).Result()
		if err != nil {
			return 0, math.NaN(), err
		}
		keys++
		bytes += float64(n)
	}
	if err := names.Err(); err != nil {
		return 0, math.NaN(), err
	}
	if keys == 0 {
		return 0, math.NaN(), errors.New("no key in Redis has the user's key in its name")
	}
	return keys, bytes, nil
}
