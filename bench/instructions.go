package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/zeromicro/go-zero/core/logx"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// countedCall is one or more commands for which Redis's instructions are counted. The last command decides.
type countedCall struct {
	name   string
	ask    func(ctx context.Context, key string) (allowed bool, err error)
	denied bool // countedBefore units are the whole limit
}

const (
	countedKeys   = 40 // each command of a pipeline has its own key
	countedBefore = 20 // units, or holds, that each key has been charged before
	countedRounds = 50 // pipelines
)

// briefLimit has a window that is over before the same key is asked for again.
var briefLimit = limit.Per(100, 2*time.Millisecond)

// countInstructions prints how many instructions Redis executes, in user space, for one decision in a
// pipeline. Valgrind counts them on a server that only this run uses. The numbers hardly depend on other work on the
// machine.
func countInstructions(ctx context.Context, serverName string, stdout io.Writer) error {
	logx.Disable() // go-zero logs this process's memory once a minute
	binary, err := findServer(serverName)
	if err != nil {
		return err
	}
	if _, err := exec.LookPath("valgrind"); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "bench-instructions-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	script := fmt.Sprintf("#!/bin/sh\nexec valgrind -q --tool=callgrind --callgrind-out-file='%s/out' '%s' \"$@\"\n", dir, binary)
	wrapped := filepath.Join(dir, "server")
	if err := os.WriteFile(wrapped, []byte(script), 0o700); err != nil {
		return err
	}
	s, err := startServer(ctx, wrapped, "--hz", "1") // Redis's background work is counted too
	if err != nil {
		return err
	}
	defer s.stop()
	client, err := newControl(s.url())
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	recorder := &recorder{}
	client.AddHook(recorder)

	count := func(c countedCall) error {
		n, err := s.instructions(ctx, client, recorder, c, filepath.Join(dir, "out"))
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		_, err = fmt.Fprintf(stdout, "%-70s %8.0f\n", c.name, n)
		return err
	}
	all, err := allCounted(ctx, client)
	for _, c := range all {
		if err == nil {
			err = count(c)
		}
	}
	return err
}

func allCounted(ctx context.Context, client *redis.Client) ([]countedCall, error) {
	script := remote.NewScript(client)
	script.Prepare(ctx)
	var all []countedCall
	for _, r := range []struct {
		name      string
		algorithm limit.Algorithm
		quota     int64
	}{
		{"GCRA", limit.GCRA(), 1000},
		{"GCRA, a unit takes no whole number of µs", limit.GCRA(), 1100},
		{"sliding log", limit.SlidingLog(), 1000},
		{"counter k=1, strict", limit.SlidingCounter(1, limit.Strict), 1000},
		{"counter k=16, strict", limit.SlidingCounter(16, limit.Strict), 1000},
		{"fixed window", limit.FixedWindow(), 1000},
	} {
		l := limit.PerHour(r.quota)
		if r.algorithm.Same(limit.GCRA()) {
			l = l.WithBurst(r.quota)
		}
		rule, err := remote.NewRule(l, r.algorithm)
		if err != nil {
			return nil, err
		}
		run := func(ctx context.Context, e remote.Entry) (bool, error) {
			e.Rule = rule
			return runCounted(ctx, script, e)
		}
		all = append(all, countedCall{name: r.name, ask: func(ctx context.Context, key string) (bool, error) {
			return run(ctx, remote.Entry{Key: r.name + ":" + key, Cost: 1})
		}})
		for _, cost := range []int64{1, 5} {
			used, err := remote.NewRule(limit.PerHour(countedBefore*cost).WithBurst(countedBefore*cost), r.algorithm)
			if err != nil {
				return nil, err
			}
			name := fmt.Sprintf("%s: denial of %d", r.name, cost)
			all = append(all, countedCall{name: name, denied: true, ask: func(ctx context.Context, key string) (bool, error) {
				return runCounted(ctx, script, remote.Entry{Key: "used:" + name + ":" + key, Cost: cost, Rule: used})
			}})
		}
		all = append(all, countedHold(script, rule, r.name, 0, usedUnits), countedHold(script, rule, r.name, 0, overusedUnits))
	}
	million, err := remote.NewRule(limit.PerHour(1_000_000).WithBurst(1_000_000), limit.GCRA())
	if err != nil {
		return nil, err
	}
	for _, n := range []int{16, 64, 250} {
		all = append(all, countedHold(script, million, fmt.Sprintf("GCRA, %d other holds are open", n), n, usedUnits))
	}
	together, err := countedTogether(script, million)
	if err != nil {
		return nil, err
	}
	all = append(all, together)
	for _, n := range []int{1, 16, 64} {
		c, err := countedSlots(ctx, client, script, n)
		if err != nil {
			return nil, err
		}
		all = append(all, c...)
	}
	hour, err := remote.NewRule(limit.PerHour(1000).WithBurst(1000), limit.GCRA())
	if err != nil {
		return nil, err
	}
	for _, n := range []int{2, 16} {
		all = append(all, countedCall{name: fmt.Sprintf("GCRA, %d keys", n), ask: func(ctx context.Context, key string) (bool, error) {
			return runCounted(ctx, script, countedEntries(hour, key, n, 0)...)
		}})
	}
	for _, r := range []struct {
		name      string
		algorithm limit.Algorithm
		limit     limit.Limit
	}{
		{"GCRA, 16 keys without debt", limit.GCRA(), limit.PerHour(3_600_000).WithBurst(1_000_000)},
		{"sliding log, 16 new keys", limit.SlidingLog(), briefLimit},
		{"counter k=1, strict, 16 new keys", limit.SlidingCounter(1, limit.Strict), briefLimit},
		{"fixed window, 16 new keys", limit.FixedWindow(), briefLimit},
	} {
		rule, err := remote.NewRule(r.limit, r.algorithm)
		if err != nil {
			return nil, err
		}
		all = append(all, countedCall{name: r.name, ask: func(ctx context.Context, key string) (bool, error) {
			return runCounted(ctx, script, countedEntries(rule, r.name+":"+key, 16, 0)...)
		}})
	}
	all = append(all, countedCall{name: "GCRA, 3 keys, all or none", ask: func(ctx context.Context, key string) (bool, error) {
		return runCounted(ctx, script, countedEntries(hour, "group:"+key, 3, 1)...)
	}})
	others := redis_rate.NewLimiter(client)
	all = append(all, countedCall{name: nameRedisRate, ask: func(ctx context.Context, key string) (bool, error) {
		d, err := others.Allow(ctx, key, redisRateLimit(limit.PerHour(1000)))
		return err == nil && d.Allowed == 1, err
	}})
	for _, floor := range []struct {
		name, script string
		keys         int
	}{{"EVALSHA of plain GCRA", plainGCRA, 1}, {"EVALSHA of plain GCRA, 3 keys, all or none", plainThree, 3}, {"EVALSHA of return 1", "return 1", 1}} {
		sha, err := client.ScriptLoad(ctx, floor.script).Result()
		if err != nil {
			return nil, err
		}
		interval := time.Hour.Microseconds() / 1000
		all = append(all, countedCall{name: floor.name, ask: func(ctx context.Context, key string) (bool, error) {
			var keys []string
			var limits []any
			for i := range floor.keys {
				keys, limits = append(keys, fmt.Sprintf("plain:%d:%s", i, key)), append(limits, interval, 1000*interval)
			}
			n, err := client.EvalSha(ctx, sha, keys, limits...).Int()
			return n == 1, err
		}})
	}
	return all, nil
}

// overusedUnits is more than what is held.
const overusedUnits = heldUnits + 3

// countedHold holds units and settles them with the given number of used units while n other holds of the key are open.
func countedHold(script *remote.Script, rule *remote.Rule, name string, n int, used int64) countedCall {
	name += ": hold and settlement"
	if used > heldUnits {
		name += " of more"
	}
	id, opened := uint64(0x3c9a_5e17_45d2_0b81), map[string]bool{} // a process counts from a random number
	return countedCall{name: name, ask: func(ctx context.Context, key string) (bool, error) {
		e := remote.Entry{Key: "held:" + name + ":" + key, Rule: rule}
		hold := func() error {
			id++
			e.Operation, e.Cost, e.Hold = lua.Hold, heldUnits, &remote.Hold{ID: id, Life: time.Hour}
			if _, err := runCounted(ctx, script, e); !errors.Is(err, errRecorded) {
				return err
			}
			return nil
		}
		for i := 0; i < n && !opened[key]; i++ {
			if err := hold(); err != nil {
				return false, err
			}
		}
		opened[key] = true
		if err := hold(); err != nil {
			return false, err
		}
		e.Operation, e.Cost = lua.Settle, used
		return runCounted(ctx, script, e)
	}}
}

// countedTogether does what a request to a language model may need: it charges a request, holds units of two limits and
// acquires a slot, all or none, and then settles both holds and releases the slot together.
func countedTogether(script *remote.Script, smooth *remote.Rule) (c countedCall, err error) {
	daily, err := remote.NewRule(limit.PerDay(1_000_000), limit.FixedWindow())
	if err != nil {
		return c, err
	}
	atOnce, err := remote.NewSlotsRule(limit.Concurrent(manySlots), 10*time.Minute, remote.Holder{0: 1})
	if err != nil {
		return c, err
	}
	id := uint64(0x3c9a_5e17_45d2_0b81)
	held := func(key string, rule *remote.Rule) remote.Entry {
		id++
		return remote.Entry{Key: key, Rule: rule, Operation: lua.Hold, Cost: heldUnits, Hold: &remote.Hold{ID: id, Life: time.Hour}}
	}
	c.name = "a charge, two holds and a slot, all or none; and their end"
	c.ask = func(ctx context.Context, key string) (bool, error) {
		request, slot := remote.Entry{Key: "request:" + key, Rule: smooth, Cost: 1}, remote.Entry{Key: "slot:" + key, Rule: atOnce, Cost: 1}
		units, budget := held("units:"+key, smooth), held("budget:"+key, daily)
		group := []remote.Entry{request, units, budget, slot}
		for i := range group {
			group[i].Group = 1
		}
		if _, err := runCounted(ctx, script, group...); err != nil && !errors.Is(err, errRecorded) {
			return false, err
		}
		units.Operation, units.Cost = lua.Settle, usedUnits
		budget.Operation, budget.Cost = lua.Settle, usedUnits
		slot.Operation = lua.Refund
		return runCounted(ctx, script, units, budget, slot)
	}
	return c, nil
}

// countedSlots acquires and releases a slot while n processes hold slots of the key: this one or not, and in a sorted set.
func countedSlots(ctx context.Context, client *redis.Client, script *remote.Script, n int) (all []countedCall, err error) {
	rules := make([]*remote.Rule, n+1) // the last process holds none
	for i := range rules {
		holder := remote.Holder{0: 1, 6: byte(i >> 8), 7: byte(i)}
		if rules[i], err = remote.NewSlotsRule(limit.Concurrent(manySlots), 10*time.Minute, holder); err != nil {
			return nil, err
		}
	}
	held := map[string]bool{}
	hold := func(key string, acquire func(i int) error) (err error) {
		for i := 0; i < n && !held[key] && err == nil; i++ {
			err = acquire(i)
		}
		held[key] = true
		return err
	}
	occupy := func(ctx context.Context, key string) error {
		return hold(key, func(i int) error {
			_, err := runCounted(ctx, script, remote.Entry{Key: key, Rule: rules[i], Cost: 1})
			return err
		})
	}
	for _, who := range []struct {
		name string
		rule *remote.Rule
	}{{"one of them", rules[0]}, {"another", rules[n]}} {
		name := fmt.Sprintf("%d processes hold slots: %s acquires and releases one", n, who.name)
		all = append(all, countedCall{name: name, ask: func(ctx context.Context, key string) (bool, error) {
			key = name + key
			if err := occupy(ctx, key); err != nil {
				return false, err
			}
			e := remote.Entry{Key: key, Rule: who.rule, Cost: 1}
			if _, err := runCounted(ctx, script, e); err != nil && !errors.Is(err, errRecorded) {
				return false, err
			}
			e.Operation = lua.Refund
			return runCounted(ctx, script, e)
		}})
	}
	both := fmt.Sprintf("%d processes hold slots: one of them releases one and acquires one, in one trip", n)
	all = append(all, countedCall{name: both, ask: func(ctx context.Context, key string) (bool, error) {
		key = both + key
		if err := occupy(ctx, key); err != nil {
			return false, err
		}
		e := remote.Entry{Key: key, Rule: rules[0], Cost: 1}
		released := e
		released.Operation = lua.Refund
		return runCounted(ctx, script, released, e)
	}})
	sha, err := client.ScriptLoad(ctx, semaphoreScript).Result()
	name := fmt.Sprintf("a semaphore with %d members: one more acquires and releases", n)
	all = append(all, countedCall{name: name, ask: func(ctx context.Context, key string) (bool, error) {
		key = name + key
		acquire := func(i int) error {
			return client.EvalSha(ctx, sha, []string{key}, time.Now().UnixMilli(), time.Now().Add(time.Hour).UnixMilli(), manySlots, i).Err()
		}
		err := hold(key, acquire)
		if err == nil {
			err = acquire(n)
		}
		if err != nil && !errors.Is(err, errRecorded) {
			return false, err
		}
		err = client.ZRem(ctx, key, n).Err()
		return err == nil, err
	}})
	return all, err
}

// countedEntries returns entries for n keys, which are a group if group is not 0.
func countedEntries(rule *remote.Rule, key string, n, group int) (entries []remote.Entry) {
	for i := range n {
		entries = append(entries, remote.Entry{Key: fmt.Sprintf("%d of %d:%s", i, n, key), Rule: rule, Cost: 1, Group: group})
	}
	return entries
}

// runCounted runs one trip. It reports whether the first entry is allowed; the status of a settlement is Allowed, too.
func runCounted(ctx context.Context, script *remote.Script, entries ...remote.Entry) (bool, error) {
	for i := range entries {
		entries[i].NotAfter = time.Now().Add(time.Hour).UnixMicro()
	}
	replies, err := script.Run(ctx, entries, 0)
	if err != nil {
		return false, err
	}
	return replies[0].Status == remote.Allowed, replies[0].Err
}

// instructions counts Redis's instructions for one decision.
func (s *server) instructions(ctx context.Context, client *redis.Client, recorder *recorder, c countedCall, out string) (float64, error) {
	key := func(i int) string { return "instructions:" + strconv.Itoa(i) }
	check := func(want bool) error {
		for i := range countedKeys {
			allowed, err := c.ask(ctx, key(i))
			if err != nil || allowed != want {
				return errors.Join(fmt.Errorf("allowed: %v", allowed), err)
			}
		}
		return nil
	}
	for range countedBefore {
		if err := check(true); err != nil {
			return 0, err
		}
	}
	recorder.on = true
	for i := range countedKeys {
		if _, err := c.ask(ctx, key(i)); !errors.Is(err, errRecorded) {
			return 0, fmt.Errorf("not recorded: %w", err)
		}
	}
	recorder.on = false
	commands := recorder.commands
	recorder.commands = nil
	pid := strconv.Itoa(s.process.Process.Pid)
	if err := exec.CommandContext(ctx, "callgrind_control", "-z", pid).Run(); err != nil {
		return 0, err
	}
	for range countedRounds {
		pipe := client.Pipeline()
		for _, args := range commands {
			pipe.Do(ctx, args...)
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return 0, err
		}
	}
	if err := exec.CommandContext(ctx, "callgrind_control", "-d", pid).Run(); err != nil {
		return 0, err
	}
	total, err := readTotal(out)
	return total / (countedKeys * countedRounds), errors.Join(err, check(!c.denied))
}

// readTotal returns the number of instructions in Callgrind's newest dump, and removes all dumps.
func readTotal(out string) (total float64, err error) {
	dumps, err := filepath.Glob(out + ".*")
	if err != nil {
		return 0, err
	}
	for _, dump := range dumps {
		text, err := os.ReadFile(dump)
		if err != nil {
			return 0, err
		}
		if _, after, found := strings.Cut(string(text), "totals: "); found {
			line, _, _ := strings.Cut(after, "\n")
			if total, err = strconv.ParseFloat(strings.TrimSpace(line), 64); err != nil {
				return 0, err
			}
		}
		if err := os.Remove(dump); err != nil {
			return 0, err
		}
	}
	if total == 0 {
		return 0, errors.New("callgrind has written no total")
	}
	return total, nil
}

// recorder is a hook that records commands instead of sending them while it is on.
type recorder struct {
	on       bool
	commands [][]any
}

var errRecorded = errors.New("recorded")

func (r *recorder) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *recorder) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (r *recorder) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !r.on {
			return next(ctx, cmd)
		}
		r.commands = append(r.commands, cmd.Args())
		return errRecorded
	}
}
