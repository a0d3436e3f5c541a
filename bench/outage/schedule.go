package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"
)

// fault is one failure that lasts for a while, and the pause after it.
type fault struct {
	kind      string
	instance  int // the instance that is cut off or restarted
	delay     int // ms each way
	length    time.Duration
	restarted int // an instance that is restarted in the middle; -1: none
	pause     time.Duration
}

func (t fault) String() string {
	text := fmt.Sprintf("%s for %v", t.kind, t.length)
	switch t.kind {
	case "cut off", "restart":
		text += fmt.Sprintf(" (instance %d)", t.instance)
	case "delay":
		text += fmt.Sprintf(" (%d ms each way)", t.delay)
	}
	if t.restarted >= 0 {
		text += fmt.Sprintf(", instance %d restarted in the middle", t.restarted)
	}
	return fmt.Sprintf("%s, then %v", text, t.pause)
}

var faultKinds = []string{"stop", "kill", "partition", "cut off", "delay", "flushall", "restart"}

// randomFaults makes the schedule of a seed.
func randomFaults(seed uint64, window time.Duration, instances int) (faults []fault) {
	random := rand.New(rand.NewPCG(seed, 0))
	part := func(most float64) time.Duration {
		return time.Duration(random.Float64() * most * float64(window)).Round(time.Millisecond)
	}
	for range 1 + random.IntN(4) {
		t := fault{
			kind:      faultKinds[random.IntN(len(faultKinds))],
			instance:  random.IntN(instances),
			delay:     1 + random.IntN(100),
			length:    window/4 + part(2),
			restarted: -1,
			pause:     part(1.5),
		}
		if random.IntN(4) == 0 {
			t.restarted = random.IntN(instances)
		}
		faults = append(faults, t)
	}
	return faults
}

// strike makes one fault happen and end.
func (f *fleet) strike(t fault) error {
	var err error
	heal := func() error { return healAll(f) }
	switch t.kind {
	case "stop":
		f.server.Pause()
		heal = func() error { f.server.Resume(); return nil }
	case "kill":
		f.server.Kill()
		heal = func() error { f.server.Restart(); return nil }
	case "partition":
		err = dropAll(f)
	case "cut off":
		err = f.proxies[t.instance].Drop()
	case "delay":
		for _, p := range f.proxies {
			err = errors.Join(err, p.Delay(t.delay, t.delay/4))
		}
	case "flushall":
		err = f.flushAll()
	case "restart":
		err = f.replace(t.instance)
	}
	if err != nil {
		return err
	}
	if err := f.wait(t.length / 2); err != nil {
		return err
	}
	if t.restarted >= 0 {
		if err := f.replace(t.restarted); err != nil {
			return err
		}
	}
	if err := f.wait(t.length / 2); err != nil {
		return err
	}
	if err := heal(); err != nil {
		return err
	}
	return f.wait(t.pause)
}

// replace restarts an instance, and offers it its part of the load again.
func (f *fleet) replace(i int) error {
	if err := f.restart(i); err != nil {
		return err
	}
	return f.offerOne(i, f.Load*f.weights[i])
}

// boundOf returns the most that a schedule may let through, as a factor of the limit: the largest sum of the shares,
// and what is admitted until a loss of memory is noticed.
func boundOf(faults []fault, s settings, instances int) float64 {
	b := 2 - 1/float64(instances)
	for _, t := range faults {
		if t.kind == "flushall" || t.kind == "kill" {
			return b + min(1, s.Load*1.1/s.Window.Seconds())
		}
	}
	return b
}

// schedulesAtOnce is how many schedules play at the same time, to shorten a long list.
const schedulesAtOnce = 4

// playSchedules plays random schedules and combines their outcomes into one.
func playSchedules(ctx context.Context, s settings, sc scenario) (outcome, error) {
	s.Window, s.Quota = min(s.Window, 2*time.Second), 400
	sc.weights, sc.crowded = even, true
	all := make([]outcome, s.Schedules)
	failed := make([]error, s.Schedules)
	var wg sync.WaitGroup
	turn := make(chan struct{}, schedulesAtOnce)
	for i := range s.Schedules {
		turn <- struct{}{}
		wg.Go(func() {
			defer func() { <-turn }()
			all[i], failed[i] = playSchedule(ctx, s, sc, s.Seed+uint64(i))
		})
	}
	wg.Wait()
	o := outcome{Name: sc.name, About: fmt.Sprintf("%d random schedules of faults, seeds from %d", s.Schedules, s.Seed)}
	worst := make(map[string]int) // in o.Checks
	for _, one := range all {
		bad := false
		for _, c := range one.Checks {
			bad = bad || !c.met()
			if i, seen := worst[c.What]; !seen {
				worst[c.What] = len(o.Checks)
				o.Checks = append(o.Checks, c)
			} else if c.Value > o.Checks[i].Value {
				o.Checks[i] = c
			}
		}
		if bad {
			o.Notes = append(o.Notes, one.Notes...)
		}
	}
	return o, errors.Join(failed...)
}

func playSchedule(ctx context.Context, s settings, sc scenario, seed uint64) (o outcome, err error) {
	s.Seed = seed
	faults := randomFaults(seed, s.Window, len(sc.weights))
	var lines []string
	for _, t := range faults {
		lines = append(lines, t.String())
	}
	schedule := fmt.Sprintf("seed %d: %s", seed, strings.Join(lines, "; "))
	sc.play = func(f *fleet) error {
		if err := f.offer(f.Load, f.weights); err != nil {
			return err
		}
		if err := f.wait(f.Window * 3 / 2); err != nil {
			return err
		}
		f.cut = now()
		for _, t := range faults {
			if err := f.strike(t); err != nil {
				return fmt.Errorf("%s: %w", schedule, err)
			}
		}
		f.up = now()
		if err := f.reconnected(); err != nil {
			return err
		}
		return f.wait(f.Window)
	}
	sc.judge = func(f *fleet, calls []call) {
		worst, bound := f.factors(ours, calls).Worst, boundOf(faults, s, len(sc.weights))
		f.note("%s: %.2f, at most %.2f", schedule, worst, bound)
		f.check("worst window / what the schedule may let through", worst/bound, most["random"], false)
	}
	return playOne(ctx, s, sc)
}
