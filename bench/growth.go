package main

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// picture shows how a cost grows with a parameter. Both axes are logarithmic.
type picture struct {
	file, title, x, y string
	curves            []curve
}

// curve belongs to one subject or algorithm.
type curve struct {
	name   string
	points []point
}

type point struct{ x, y float64 }

// growth measures how the cost of a decision grows with the parameters that it may depend on. Redis itself reports
// its cost (INFO commandstats), so other work on the machine does not matter.
type growth struct {
	bench  *bench
	script *remote.Script
	made   int // number of keys made so far
}

func newGrowth(ctx context.Context, b *bench) *growth {
	g := &growth{bench: b, script: remote.NewScript(b.control)}
	g.script.Prepare(ctx)
	return g
}

// measureGrowth measures all pictures.
func (b *bench) measureGrowth(ctx context.Context) ([]picture, error) {
	g := newGrowth(ctx, b)
	pictures := []picture{
		{file: "growth-callers-hot.svg", title: "one hot key", x: "callers", y: "decisions per second"},
		{file: "growth-callers-uniform.svg", title: "many keys, each as often as any other", x: "callers", y: "decisions per second"},
		{file: "growth-limit.svg", title: "one decision of cost 1 at a time, half of the limit used", x: "limit", y: "µs of Redis's time per decision"},
		{file: "growth-cost.svg", title: "one decision at a time, limit 1,000,000", x: "cost", y: "µs of Redis's time per decision"},
		{file: "growth-batch.svg", title: "decisions of cost 1 of different keys in one call, limit 1,000", x: "decisions per call", y: "µs of Redis's time per decision"},
		{file: "growth-keys.svg", title: "128 decisions of cost 1 in one call, limit 1,000", x: "keys", y: "µs of Redis's time per decision"},
	}
	for i, measure := range []func(context.Context) ([]curve, error){
		func(ctx context.Context) ([]curve, error) { return g.byCallers(ctx, hotKey(b.run)) },
		func(ctx context.Context) ([]curve, error) {
			return g.byCallers(ctx, manyKeys(b.run, b.settings.Keys))
		},
		g.byLimit, g.byCost, g.byBatch, g.byKeys,
	} {
		b.progress.say("%s: %s by %s", pictures[i].title, pictures[i].y, pictures[i].x)
		began := time.Now()
		curves, err := measure(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", pictures[i].file, err)
		}
		pictures[i].curves = curves
		b.progress.add(time.Since(began))
	}
	b.progress.done()
	return pictures, nil
}

const maxCallers = 1024

// growthTakes returns about how long measureGrowth takes.
func (s *settings) growthTakes() time.Duration {
	cells := 2 * 3 * bits.Len(maxCallers) * s.Rounds
	return time.Duration(cells)*s.span*5/4 + 40*time.Second + time.Duration(s.Keys)*100*time.Microsecond
}

func (g *growth) byCallers(ctx context.Context, w workload) (curves []curve, err error) {
	b := g.bench
	w.name = "growth"
	for _, c := range []contender{
		{nameGCRA, ours, openGCRA},
		{nameRedisRate, peer, openRedisRate},
		{nameRueidis, peer, openRueidis},
	} {
		s, err := open(ctx, c, b.env, &w)
		if err != nil {
			return nil, err
		}
		points, err := g.throughput(ctx, s, &w)
		if err := errors.Join(err, s.close()); err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		curves = append(curves, curve{c.name, points})
	}
	return curves, nil
}

func (g *growth) throughput(ctx context.Context, s *subject, w *workload) (points []point, err error) {
	b := g.bench
	for callers := 1; callers <= maxCallers; callers *= 2 {
		var rounds []float64
		for range b.settings.Rounds {
			m, err := measure(ctx, b.control, s, w, drive, size{callers: callers}, b.settings.span, b.settings.span/4)
			if err != nil {
				return nil, err
			}
			rounds = append(rounds, m.values[perSecond])
		}
		points = append(points, point{float64(callers), median(rounds)})
	}
	return points, nil
}

// state is an algorithm whose cost in Redis is measured.
type state struct {
	name      string
	algorithm limit.Algorithm
}

func states() []state {
	return []state{
		{"sliding log (ring)", limit.SlidingLog()},
		{"sliding log (sorted set)", limit.SlidingLogZSet()},
		{fmt.Sprintf("sliding counter, k=%d", limit.DefaultBuckets), limit.SlidingCounter(limit.DefaultBuckets, limit.Strict)},
		{"GCRA", limit.GCRA()},
		{"fixed window", limit.FixedWindow()},
	}
}

// A point is the median over some parts of the mean cost of a number of calls. There are fewer calls if they would
// write more than maxWritten units of a log.
const (
	parts      = 10
	trips      = 40
	maxWritten = 200_000
)

func tripsOf(cost int64, batch int) int64 {
	return max(1, min(trips, maxWritten/(cost*int64(batch))))
}

// largest returns the largest limit on an algorithm's curve.
func largest(a limit.Algorithm) int64 {
	switch a {
	case limit.SlidingLog():
		return lua.MaxLogUnits
	case limit.SlidingLogZSet():
		return lua.MaxLogZSetUnits
	}
	return 1_000_000
}

func (g *growth) byLimit(ctx context.Context) ([]curve, error) {
	return g.each(func(a limit.Algorithm) ([]point, error) {
		return along(10, largest(a), func(quota int64) (float64, error) {
			// Use so many keys that none is used up.
			each := min(parts*trips, quota/4+1)
			keys := g.keys(int(parts*trips/each) + 1)
			return g.redisTime(ctx, a, quota, keys, quota/2, 1, 1)
		})
	})
}

func (g *growth) byCost(ctx context.Context) ([]curve, error) {
	return g.each(func(a limit.Algorithm) ([]point, error) {
		quota := largest(a)
		return along(1, quota/10, func(cost int64) (float64, error) {
			keys := g.keys(int(parts*tripsOf(cost, 1)*cost/(quota/2)) + 1)
			return g.redisTime(ctx, a, quota, keys, 1, cost, 1)
		})
	})
}

func (g *growth) byBatch(ctx context.Context) ([]curve, error) {
	return g.each(func(a limit.Algorithm) (points []point, err error) {
		for batch := 1; batch <= 256; batch *= 2 {
			µs, err := g.redisTime(ctx, a, 1000, g.keys(512), 1, 1, batch)
			if err != nil {
				return nil, err
			}
			points = append(points, point{float64(batch), µs})
		}
		return points, nil
	})
}

func (g *growth) byKeys(ctx context.Context) ([]curve, error) {
	return g.each(func(a limit.Algorithm) (points []point, err error) {
		for n := 1000; n <= 10*g.bench.settings.Keys; n *= 10 {
			µs, err := g.redisTime(ctx, a, 1000, g.keys(n), 1, 1, 128)
			if err != nil {
				return nil, err
			}
			points = append(points, point{float64(n), µs})
		}
		return points, nil
	})
}

// each returns a curve for each algorithm. Keys are removed after use, so they are no burden for the next.
func (g *growth) each(measure func(limit.Algorithm) ([]point, error)) (curves []curve, err error) {
	for _, s := range states() {
		points, err := measure(s.algorithm)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		curves = append(curves, curve{s.name, points})
	}
	return curves, nil
}

// along measures at powers of ten, and at three times each of them.
func along(from, to int64, measure func(int64) (float64, error)) (points []point, err error) {
	for x := from; x <= to; x *= 10 {
		for _, at := range []int64{x, 3 * x} {
			if at > to {
				break
			}
			y, err := measure(at)
			if err != nil {
				return nil, err
			}
			points = append(points, point{float64(at), y})
		}
	}
	return points, nil
}

// keys returns new keys.
func (g *growth) keys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		g.made++
		keys[i] = g.bench.run + ":growth:" + strconv.Itoa(g.made)
	}
	return keys
}

// redisTime returns Redis's time for a decision in µs. Each of the keys has had before units granted already.
func (g *growth) redisTime(ctx context.Context, a limit.Algorithm, quota int64, keys []string, before, cost int64, batch int) (float64, error) {
	l := limit.PerDay(quota)
	if a.Same(limit.GCRA()) {
		l = l.WithBurst(quota)
	}
	rule, err := remote.NewRule(l, a)
	if err != nil {
		return 0, err
	}
	for some := range slices.Chunk(keys, 128) {
		if err := g.decide(ctx, rule, some, before); err != nil {
			return 0, err
		}
	}
	times, next := make([]float64, parts), 0
	for part := range times {
		began, err := g.scriptTime(ctx)
		if err != nil {
			return 0, err
		}
		calls := int(tripsOf(cost, batch))
		for range calls {
			some := make([]string, batch)
			for i := range some {
				some[i] = keys[next*7919%len(keys)] // neighbors in a call are not neighbors in memory
				next++
			}
			if err := g.decide(ctx, rule, some, cost); err != nil {
				return 0, err
			}
		}
		ended, err := g.scriptTime(ctx)
		if err != nil {
			return 0, err
		}
		times[part] = (ended - began) / float64(calls*batch)
	}
	for some := range slices.Chunk(keys, 1000) {
		if err := g.bench.control.Unlink(ctx, some...).Err(); err != nil {
			return 0, err
		}
	}
	return median(times), nil
}

// decide makes a decision for each of the keys, in one call. All must be allowed, because a denial has another cost.
func (g *growth) decide(ctx context.Context, rule *remote.Rule, keys []string, cost int64) error {
	entries := make([]remote.Entry, len(keys))
	for i, key := range keys {
		entries[i] = remote.Entry{Key: key, Rule: rule, Cost: cost}
	}
	replies, err := g.script.Run(ctx, entries, 0)
	if err != nil {
		return err
	}
	for i := range replies {
		if err := replies[i].Err; err != nil {
			return err
		}
		if replies[i].Status != remote.Allowed {
			return fmt.Errorf("%s at cost %d: status %d, should be allowed", keys[i], cost, replies[i].Status)
		}
	}
	return nil
}

// scriptTime returns the time in µs that Redis has spent in scripts since it started.
func (g *growth) scriptTime(ctx context.Context) (float64, error) {
	stats, err := readInfo(ctx, g.bench.control, "commandstats")
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for _, name := range []string{"fcall", "evalsha", "eval"} {
		for field := range strings.SplitSeq(stats["cmdstat_"+name], ",") {
			if text, ok := strings.CutPrefix(field, "usec="); ok {
				µs, err := strconv.ParseFloat(text, 64)
				if err != nil {
					return 0, fmt.Errorf("INFO commandstats: %s: %w", name, err)
				}
				sum += µs
			}
		}
	}
	return sum, nil
}
