package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/redis/go-redis/v9"
)

// bench is one run.
type bench struct {
	settings settings
	env      environment
	groups   []group
	control  *redis.Client // reads the server's counters
	machine  machine
	progress io.Writer
	left     int // measurements still to make
	started  time.Time
}

func newBench(ctx context.Context, s settings, url string, progress io.Writer) (*bench, error) {
	control, err := newClient(url, 1)
	if err != nil {
		return nil, err
	}
	b := &bench{
		settings: s,
		env:      environment{url: url, pool: s.Pool},
		groups:   groups(s, rand.Text()[:6]),
		control:  control,
		progress: progress,
		started:  time.Now(),
	}
	if b.machine, err = thisMachine(ctx, control); err != nil {
		return nil, errors.Join(err, b.close())
	}
	for _, g := range b.groups {
		b.left += len(g.open) * len(s.Callers) * s.Rounds
	}
	return b, nil
}

func (b *bench) close() error { return b.control.Close() }

// estimate is about how long the measurements take: each with its warm-up and a
// garbage collection, and all keys once through every subject with state.
func (b *bench) estimate() time.Duration {
	each := b.settings.span + max(b.settings.span/5, 50*time.Millisecond) + 20*time.Millisecond
	const perKey = 4 * 20 * time.Microsecond
	return time.Duration(b.left)*each + time.Duration(b.settings.Keys)*perKey
}

func (b *bench) measureAll(ctx context.Context) ([]cell, error) {
	fmt.Fprintf(b.progress, "%d measurements of %v, about %v in all\n", b.left, b.settings.span, b.estimate().Round(time.Second))
	var cells []cell
	for i := range b.groups {
		more, err := b.measureGroup(ctx, &b.groups[i])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", b.groups[i].title, err)
		}
		cells = append(cells, more...)
	}
	fmt.Fprintf(b.progress, "done in %v\n", time.Since(b.started).Round(time.Second))
	return cells, nil
}

// measureGroup opens the group's subjects for as long as they are measured.
func (b *bench) measureGroup(ctx context.Context, g *group) (cells []cell, err error) {
	var subjects []*subject
	defer func() {
		for _, s := range subjects {
			err = errors.Join(err, s.close())
		}
	}()
	for _, open := range g.open {
		s, err := open(ctx, b.env, &g.workload)
		if err != nil {
			return nil, err
		}
		subjects = append(subjects, s)
		if s.hasState {
			if err := useEachKeyOnce(ctx, s, &g.workload); err != nil {
				return nil, err
			}
		}
	}
	for _, callers := range b.settings.Callers {
		rounds, err := b.measureRounds(ctx, g, subjects, callers)
		if err != nil {
			return nil, err
		}
		cells = append(cells, newCells(g, subjects, callers, rounds)...)
	}
	return cells, nil
}

// measureRounds measures every subject once per round, in an order that moves on
// by one each round: the machine's slow moments then hit no subject alone, and no
// subject always follows the same one. The result is indexed by subject, round.
func (b *bench) measureRounds(ctx context.Context, g *group, subjects []*subject, callers int) ([][]measurement, error) {
	rounds := make([][]measurement, len(subjects))
	for round := range b.settings.Rounds {
		fmt.Fprintf(b.progress, "%4.0fs  %s, %s, round %d of %d\n",
			time.Since(b.started).Seconds(), g.title, count(callers, "caller"), round+1, b.settings.Rounds)
		for i := range subjects {
			at := (i + round) % len(subjects)
			m, err := measure(ctx, b.control, subjects[at], &g.workload, callers, b.settings.span)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", subjects[at].name, err)
			}
			if math.IsNaN(m.values[p50]) {
				return nil, fmt.Errorf("%s: no call was made", subjects[at].name)
			}
			rounds[at] = append(rounds[at], m)
			b.left--
		}
	}
	return rounds, nil
}
