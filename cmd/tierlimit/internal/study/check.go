package study

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/model"
	"github.com/tierlimit/tierlimit/remote"
)

// CheckedPerPoint is the number of requests of each configuration that the script also decides.
const CheckedPerPoint = 100

// Check lets the real script decide the first requests of a point's worst key, and returns the number
// of requests that it decided. If the script and the model differ, the error says where.
func Check(ctx context.Context, client *redis.Client, p Point) (checked int, err error) {
	rule, err := remote.NewRule(p.Limit, p.Algorithm)
	if err != nil {
		return 0, err
	}
	m, err := model.New(p.Limit, p.Algorithm)
	if err != nil {
		return 0, err
	}
	script, key := remote.NewScript(client), "tierlimit-report:"+strings.ToLower(rand.Text()[:12])
	defer func() { err = cmp.Or(err, client.Unlink(context.WithoutCancel(ctx), key).Err()) }()
	for _, request := range p.Traffic.Of(p.Worst.Key)[:min(CheckedPerPoint, len(p.Traffic.Of(p.Worst.Key)))] {
		at := p.Traffic.At(request)
		replies, err := script.Run(ctx, []remote.Entry{{Key: key, Rule: rule, Cost: 1}}, at)
		if err != nil {
			return checked, err
		}
		want := m.Decide(at, 1)
		if allowed := replies[0].Status == remote.Allowed; allowed != want.Allowed || replies[0].Remaining != want.Remaining {
			return checked, fmt.Errorf("%v, request %d of a key: the script says allowed %v, remaining %d; the model %v, %d", p.Candidate, checked+1, allowed, replies[0].Remaining, want.Allowed, want.Remaining)
		}
		checked++
	}
	return checked, nil
}
