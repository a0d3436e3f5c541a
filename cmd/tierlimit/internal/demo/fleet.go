package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/cmd/tierlimit/internal/replay"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/livepage"
	"github.com/tierlimit/tierlimit/tiered"
)

// instance is a member of the fleet: a limiter, used as in a service, with its own wire to Redis.
type instance struct {
	wire    *wire
	client  *redis.Client
	limiter *tiered.Limiter
	rule    *tiered.Rule
	page    *livepage.Page
}

// ruleName is the name of the rule that all instances enforce.
const ruleName = "demo"

// startFleet starts the given number of instances. The prefix keeps their keys apart from anything else
// in the Redis.
func startFleet(c Config, prefix string, size int, deadline time.Duration) (fleet []*instance, err error) {
	for range size {
		in := &instance{}
		fleet = append(fleet, in)
		if err := in.start(c, prefix, size, deadline); err != nil {
			return nil, errors.Join(err, closeFleet(fleet))
		}
	}
	return fleet, nil
}

func (in *instance) start(c Config, prefix string, size int, deadline time.Duration) (err error) {
	in.wire, err = newWire(func() (net.Conn, error) {
		if c.Redis.Dialer != nil {
			return c.Redis.Dialer(context.Background(), c.Redis.Network, c.Redis.Addr)
		}
		return net.DialTimeout(c.Redis.Network, c.Redis.Addr, time.Second)
	})
	if err != nil {
		return fmt.Errorf("an instance's connection to Redis: %w", err)
	}
	through := *c.Redis
	through.Network, through.Addr, through.Dialer = "tcp", in.wire.addr(), nil
	through.ContextTimeoutEnabled, through.MaxRetries, through.DialTimeout = true, -1, time.Second
	in.client = redis.NewClient(&through)
	in.limiter, err = tiered.New(in.client,
		tiered.Prefix(prefix),
		tiered.FleetSize(size),
		tiered.Deadline(deadline),
		tiered.LedgerKeys(10_000),
		tiered.RememberDenials(10_000),
		tiered.Logger(slog.New(slog.DiscardHandler)),
	)
	if err != nil {
		return err
	}
	if in.limiter.Degraded() {
		return replay.Unusable(in.client, c.Redis.Addr, prefix)
	}
	if in.rule, err = in.limiter.Rule(ruleName, c.Limit); err != nil {
		return err
	}
	in.page, err = livepage.New(in.limiter, livepage.HottestKeys(), livepage.Hosts(c.Hosts...))
	return err
}

// removeKeys removes the keys that the instances have left in Redis. It does not use the instances'
// wires, which may be cut.
func removeKeys(options *redis.Options, prefix string) error {
	client := redis.NewClient(options)
	return errors.Join(replay.Remove(client, prefix), client.Close())
}

func closeFleet(fleet []*instance) error {
	var err error
	for _, in := range fleet {
		if in.page != nil {
			in.page.Close()
		}
		if in.limiter != nil {
			_ = in.limiter.Close() // may fail if the wire is cut; removeKeys removes what the limiter leaves
		}
		if in.client != nil {
			err = errors.Join(err, in.client.Close())
		}
		if in.wire != nil {
			in.wire.close()
		}
	}
	return err
}

// allow decides a request. It also returns the time of the decision, by the clock that the judge uses.
func (in *instance) allow(ctx context.Context, key string) (d limit.Decision, at int64, err error) {
	d, err = in.rule.Allow(ctx, key)
	if at = d.ChargedAt; at == 0 {
		at = time.Now().UnixMicro()
	}
	return d, at, err
}
