package replay

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// bytesPerKey returns the mean size of the run's keys in Redis, bookkeeping included, or nil if the run
// left no keys.
func bytesPerKey(ctx context.Context, client *redis.Client, prefix string) (*float64, error) {
	total, keys := int64(0), 0
	err := eachPage(ctx, client, prefix, func(page []string) error {
		pipe := client.Pipeline()
		for _, key := range page {
			if strings.HasSuffix(key, ":replay") {
				pipe.MemoryUsage(ctx, key, 0)
			}
		}
		sizes, err := pipe.Exec(ctx)
		if err != nil {
			return err
		}
		for _, size := range sizes {
			total += size.(*redis.IntCmd).Val()
			keys++
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("measuring keys: %w", err)
	}
	if keys == 0 {
		return nil, nil
	}
	mean := float64(total) / float64(keys)
	return &mean, nil
}

// Remove deletes the keys with a prefix. It does so even if the program was interrupted.
func Remove(client *redis.Client, prefix string) error {
	ctx := context.Background()
	err := eachPage(ctx, client, prefix, func(page []string) error {
		return client.Unlink(ctx, page...).Err()
	})
	if err != nil {
		return fmt.Errorf("removing the keys (%s:*) from Redis: %w", prefix, err)
	}
	return nil
}

func eachPage(ctx context.Context, client *redis.Client, prefix string, do func(page []string) error) error {
	var cursor uint64
	for {
		page, next, err := client.Scan(ctx, cursor, prefix+":*", 1000).Result()
		if err != nil {
			return err
		}
		if len(page) > 0 {
			if err := do(page); err != nil {
				return err
			}
		}
		if next == 0 {
			return nil
		}
		cursor = next
	}
}
