// Package measure finds what a configuration costs on a given Redis.
package measure

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/plan"
	"github.com/tierlimit/tierlimit/remote"
)

// Cost is the result of a measurement. A value that was not measured is 0.
type Cost struct {
	Allowed time.Duration // of Redis's CPU time per decision that grants a unit
	Denied  time.Duration // per denial
	AtRest  int64         // bytes per key after one unit, plan.Bookkeeping included
	Full    int64         // bytes per key after the whole limit
}

const (
	calls = 1_000
	// fillUpTo is the size of the largest log that is filled, because a log is written unit by unit.
	fillUpTo = 10_000
	// fewestKeys is the smallest number of keys, so that the result does not depend on one key's state
	// alone.
	fewestKeys = 20
)

// On measures what a candidate costs on a Redis. It makes calls of one unit each, first on keys that
// have room and then on full keys, at one virtual instant. Its keys have names of nameBytes, and are
// removed afterwards. Scripts that other clients call in the meantime are measured, too.
func On(ctx context.Context, client *redis.Client, c plan.Candidate, nameBytes int) (cost Cost, err error) {
	if c.Limit.IsConcurrent() {
		return onConcurrent(ctx, client, c.Limit, nameBytes)
	}
	rule, err := remote.NewRule(c.Limit, c.Algorithm)
	if err != nil {
		return Cost{}, err
	}
	capacity := c.Algorithm.Capacity(c.Limit)
	perKey := int(min(capacity, int64(calls/fewestKeys)))
	m := &measurement{client: client, script: remote.NewScript(client), rule: rule, clock: time.Now().UnixMicro()}
	m.name((calls+perKey-1)/perKey, nameBytes)
	defer func() { err = cmp.Or(err, client.Unlink(context.WithoutCancel(ctx), m.keys...).Err()) }()

	// The first call loads the script, and makes a key of one unit.
	if err := m.take(ctx, m.keys[0], lua.Take, 1); err != nil {
		return Cost{}, err
	}
	if cost.AtRest, err = m.bytes(ctx); err != nil {
		return Cost{}, err
	}
	if cost.Allowed, err = m.time(ctx, calls-1, func(i int) (string, int64) { return m.keys[(i+1)%len(m.keys)], 1 }); err != nil {
		return Cost{}, err
	}
	if c.Algorithm.Name() == "sliding-log" && capacity > fillUpTo {
		return cost, nil
	}
	full := m.keys[:min(len(m.keys), fewestKeys)]
	for _, key := range full {
		if err := m.take(ctx, key, lua.TakeUpTo, capacity); err != nil {
			return Cost{}, err
		}
	}
	if cost.Full, err = m.bytes(ctx); err != nil {
		return Cost{}, err
	}
	cost.Denied, err = m.time(ctx, calls, func(i int) (string, int64) { return full[i%len(full)], 1 })
	return cost, err
}

// measurement is the state of one measurement.
type measurement struct {
	client *redis.Client
	script *remote.Script
	rule   *remote.Rule
	clock  int64
	keys   []string
}

// name makes the names of n keys. They have the given length, unless that is too short to tell them
// apart.
func (m *measurement) name(n, length int) {
	unique := "tlplan:" + strings.ToLower(rand.Text()[:8]) + ":"
	digits := len(strconv.Itoa(n))
	for i := range n {
		m.keys = append(m.keys, fmt.Sprintf("%s%0*d", unique, max(digits, length-len(unique)), i))
	}
}

func (m *measurement) take(ctx context.Context, key string, operation int, cost int64) error {
	_, err := m.script.Run(ctx, []remote.Entry{{Key: key, Rule: m.rule, Operation: operation, Cost: cost}}, m.clock)
	return err
}

// time returns how long Redis takes per call.
func (m *measurement) time(ctx context.Context, number int, call func(i int) (key string, cost int64)) (time.Duration, error) {
	before, err := m.spent(ctx)
	if err != nil {
		return 0, err
	}
	for i := range number {
		key, cost := call(i)
		if err := m.take(ctx, key, lua.Take, cost); err != nil {
			return 0, err
		}
	}
	after, err := m.spent(ctx)
	return (after.time - before.time) / time.Duration(max(1, after.calls-before.calls)), err
}

// spending is the time that Redis has spent on scripts so far, and the number of calls.
type spending struct {
	time  time.Duration
	calls int64
}

// spent reads the spending from the server's statistics.
func (m *measurement) spent(ctx context.Context) (spending, error) {
	info, err := m.client.Info(ctx, "commandstats").Result()
	if err != nil {
		return spending{}, fmt.Errorf("asking Redis for its statistics: %w", err)
	}
	var all spending
	for line := range strings.Lines(info) {
		// The script runs as a function or by its digest.
		name, values, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name != "cmdstat_fcall" && name != "cmdstat_evalsha" {
			continue
		}
		s, err := readStatistics(values)
		if err != nil {
			return spending{}, err
		}
		all.time, all.calls = all.time+s.time, all.calls+s.calls
	}
	return all, nil
}

// readStatistics reads "calls=3,usec=120,...".
func readStatistics(values string) (s spending, err error) {
	for field := range strings.SplitSeq(values, ",") {
		name, value, _ := strings.Cut(field, "=")
		switch name {
		case "calls":
			s.calls, err = strconv.ParseInt(value, 10, 64)
		case "usec":
			var usec int64
			usec, err = strconv.ParseInt(value, 10, 64)
			s.time = time.Duration(usec) * time.Microsecond
		}
		if err != nil {
			return s, fmt.Errorf("the server's statistics say %q: %w", field, err)
		}
	}
	return s, nil
}

// bytes returns the bytes that the first key takes.
func (m *measurement) bytes(ctx context.Context) (int64, error) {
	n, err := m.client.MemoryUsage(ctx, m.keys[0], 0).Result()
	if err != nil {
		return 0, fmt.Errorf("asking Redis for a key's memory: %w", err)
	}
	return n + plan.Bookkeeping, nil
}
