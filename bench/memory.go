package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/redis/go-redis/v9"
)

// memory is what one key of a limit of 1,000 per hour takes in Redis, and by the
// way a test of the subject: it grants that many and no more.
type memory struct {
	subject string
	keys    int     // keys in Redis for one of the user's
	one     float64 // bytes by MEMORY USAGE once one unit was granted
	full    float64 // and once all were
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

// grantAll uses up the limit and tries a little further. It calls first after the
// first unit.
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
	// Under GCRA a unit or two come back while this runs.
	if granted < quota || granted > quota+2 {
		return fmt.Errorf("it granted %d of %d", granted, quota)
	}
	return nil
}

// bytesOf adds up MEMORY USAGE of the keys whose name contains the key's.
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
