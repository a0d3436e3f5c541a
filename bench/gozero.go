package main

import (
	"context"
	"fmt"
	"time"

	"github.com/zeromicro/go-zero/core/limit"
	"github.com/zeromicro/go-zero/core/logx"
	"github.com/zeromicro/go-zero/core/stores/redis"
)

// openGoZero opens go-zero's PeriodLimit. It has fixed windows, each of which begins with a key's first request.
// go-zero makes its own go-redis client, one per address for the life of the process, and offers no way to size its
// pool or to close it.
//
// These workloads cannot use its other limiter, TokenLimiter: it needs an object per key, has rates in whole units
// per second, and hides errors.
func openGoZero(_ context.Context, e environment, w *workload) (*subject, error) {
	o, err := clientOptions(e)
	if err != nil {
		return nil, err
	}
	if o.DB != 0 {
		return nil, fmt.Errorf("go-zero knows no database but 0, not %d", o.DB)
	}
	logx.Disable()
	client, err := redis.NewRedis(redis.RedisConf{
		Host:            o.Addr,
		Type:            redis.NodeType,
		User:            o.Username,
		Pass:            o.Password,
		Tls:             o.TLSConfig != nil,
		DisableIdentity: o.DisableIdentity,
	})
	if err != nil {
		return nil, err
	}
	limiter := limit.NewPeriodLimit(int(w.window.Window()/time.Second), int(w.window.Quota()), client, "gozero:")
	call := func(ctx context.Context, key string) (outcome, error) {
		state, err := limiter.TakeCtx(ctx, key)
		if err != nil {
			return failed, err
		}
		return verdict(state != limit.OverQuota), nil
	}
	return overRedis(call, func() error { return nil }), nil
}
