package measure

import (
	"cmp"
	"context"
	"encoding/binary"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

const (
	// maxHolders is the largest number of processes that hold units of a key.
	maxHolders  = 1000
	slotsSuffix = ":slots"
)

// onConcurrent is On for a concurrency limit. Each unit is acquired by a different process, up to
// maxHolders.
func onConcurrent(ctx context.Context, client *redis.Client, l limit.Limit, nameBytes int) (cost Cost, err error) {
	holders := make([]*remote.Rule, min(l.Quota(), maxHolders))
	for i := range holders {
		var id remote.Holder
		binary.BigEndian.PutUint64(id[:], uint64(i))
		if holders[i], err = remote.NewSlotsRule(l, time.Minute, id); err != nil {
			return Cost{}, err
		}
	}
	perKey := min(len(holders), calls/fewestKeys)
	m := &measurement{client: client, script: remote.NewScript(client), rule: holders[0], clock: time.Now().UnixMicro()}
	m.name((calls+perKey-1)/perKey, nameBytes+len(slotsSuffix))
	defer func() { err = cmp.Or(err, client.Unlink(context.WithoutCancel(ctx), m.keys...).Err()) }()

	if err := m.take(ctx, m.keys[0], lua.Take, 1); err != nil {
		return Cost{}, err
	}
	if cost.AtRest, err = m.bytes(ctx); err != nil {
		return Cost{}, err
	}
	cost.Allowed, err = m.time(ctx, calls-1, func(i int) (string, int64) {
		m.rule = holders[(i+1)/len(m.keys)]
		return m.keys[(i+1)%len(m.keys)], 1
	})
	if err != nil {
		return Cost{}, err
	}
	for _, m.rule = range holders[perKey:] {
		if err := m.take(ctx, m.keys[0], lua.Take, 1); err != nil {
			return Cost{}, err
		}
	}
	if err := m.take(ctx, m.keys[0], lua.TakeUpTo, l.Quota()); err != nil {
		return Cost{}, err
	}
	if cost.Full, err = m.bytes(ctx); err != nil {
		return Cost{}, err
	}
	cost.Denied, err = m.time(ctx, calls, func(int) (string, int64) { return m.keys[0], 1 })
	return cost, err
}
