package tiered

import (
	"context"
	"errors"
	"fmt"

	"github.com/tierlimit/tierlimit/breaker"
	"github.com/tierlimit/tierlimit/internal/outage"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// ChargeUsed charges units that were already used, whether or not they fit. They become debt of the
// window, up to four times the limit, and later requests wait for them. ChargeUsed is for work that
// turned out to cost more than it was charged for. If you can expect that, use [Rule.Hold].
//
// The units are charged at most once (law 3). If Redis was certainly not asked, they are recorded in this
// instance, and charged once Redis answers again. If Redis's answer was lost, nobody knows whether they
// were charged, and they are not charged again.
//
// Errors wrap [limit.ErrInvalidKey], [limit.ErrInvalidCost], [limit.ErrNilContext] or [limit.ErrClosed], or
// are ctx's own error if ctx had ended before the call. A context that ends later only shortens the call. After
// an error, the units are not charged.
func (r *Rule) ChargeUsed(ctx context.Context, key string, units int64) error {
	if err := r.check(ctx, key, 1); err != nil {
		return err
	}
	if units < 1 || units > lua.MaxUnits {
		return fmt.Errorf("%w: %d units were used, must be between 1 and %d", limit.ErrInvalidCost, units, int64(lua.MaxUnits))
	}
	k := r.limiter.key(key)
	return r.chargeUsed(ctx, &k, units)
}

// chargeUsed charges used units of a key in Redis, and records them in this instance's ledger. It returns
// [limit.ErrClosed] if the limiter was closed before Redis was asked: nobody charges the units later.
func (r *Rule) chargeUsed(ctx context.Context, k *callKey, units int64) error {
	s := r.limiter.shardOf(k)
	err := breaker.ErrOpen
	if s.Breaker.Closed() {
		_, err = s.Decide(ctx, remote.Entry{
			Key: string(k.inRedis()), Rule: r.inOutage.Latest().Encoded, Operation: lua.Settle, Cost: units, Hold: &remote.Hold{},
		})
	}
	if errors.Is(err, limit.ErrClosed) {
		return err
	}
	q := r.requestAbout(k)
	s.Used(&q, units, err == nil || outage.MayBeCharged(err))
	return nil
}
