package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tierlimit/tierlimit/bench/internal/proxy"
)

// scenario is one way to lose Redis.
type scenario struct {
	name      string
	about     string
	weights   []float64 // shares of the traffic, by instance
	crowded   bool      // so much else goes on that latencies with the breaker open are not checked
	overload  *overload // nil: Redis has time for all requests
	baselines bool      // offer the same load to the common ways of limiting
	duty      func(settings, *duty)
	play      step
	judge     func(*fleet, []call) // adds checks and notes
}

var skewed = []float64{0.70, 0.15, 0.10, 0.05}

var even = []float64{0.25, 0.25, 0.25, 0.25}

func scenarios() []scenario {
	return []scenario{
		{name: "stop", about: "Redis hangs (SIGSTOP), and goes on", weights: skewed, baselines: true,
			play: outage(func(f *fleet) error { f.server.Pause(); return nil }, func(f *fleet) error { f.server.Resume(); return nil }), judge: judgeOutage},
		{name: "kill", about: "Redis is killed, and comes back with an empty memory", weights: skewed, baselines: true,
			play: outage(func(f *fleet) error { f.server.Kill(); return nil }, func(f *fleet) error { f.server.Restart(); return nil }), judge: judgeOutage},
		{name: "partition", about: "the network loses everything, silently", weights: skewed, baselines: true,
			play: outage(dropAll, healAll), judge: judgeOutage},
		{name: "one-cut-off", about: "one of four instances is cut off, that with 15 % of the traffic", weights: skewed, baselines: true,
			play: outage(func(f *fleet) error { return f.proxies[cutOff].Drop() }, healAll), judge: judgeCutOff},
		{name: "most-cut-off", about: "three of four instances are cut off at once, and each could use up the limit", weights: even, crowded: true,
			play: playMostCutOff, judge: judgeMostCutOff},
		{name: "cut-off-in-turn", about: "three of four instances are cut off one after the other, and each could use up the limit", weights: even, crowded: true,
			play: playCutOffInTurn, judge: judgeCutOffInTurn},
		{name: "slow", about: "answers take about as long as the deadline", weights: skewed, crowded: true,
			play: outage(delayAll, healAll), judge: judgeOutage},
		{name: "flapping", about: "Redis hangs every 300 ms for as long", weights: skewed, crowded: true,
			play: playFlapping, judge: judgeFlapping},
		{name: "rolling-restart", about: "all instances are replaced during the outage, one per window", weights: even,
			play: playRollingRestart, judge: judgeRestart},
		{name: "rolling-restart-heaviest-first", about: "the same with uneven traffic", weights: skewed,
			play: playRollingRestart, judge: judgeRestart},
		{name: "rolling-restart-heaviest-last", about: "the same in the opposite order", weights: []float64{0.05, 0.10, 0.15, 0.70},
			play: playRollingRestart, judge: judgeRestart},
		{name: "scale-up", about: "four instances become twelve during the outage", weights: skewed,
			duty: func(_ settings, d *duty) { d.FleetSize = scaledUp }, play: playScaleUp, judge: judgeScaleUp},
		{name: "growth", about: "instances begin one after another, each half a second, then Redis is lost", weights: even,
			play: playGrowth, judge: judgeShares},
		{name: "moved", about: "all traffic was on one instance and moves to all four at the cut", weights: []float64{1, 0, 0, 0},
			play: playMoved, judge: judgeShares},
		{name: "attack", about: "distinct keys without number during the outage, ten heavy keys among them", weights: even,
			duty: attackDuty, play: playAttack, judge: judgeAttack},
		{name: "debts", about: "many keys hold debt when Redis comes back", weights: even,
			duty: debtsDuty, play: playDebts, judge: judgeDebts},
		{name: "flushall", about: "Redis forgets everything in mid-traffic", weights: skewed, baselines: true,
			play: playFlushAll, judge: judgeMost},
		overloaded("overload", overload{keep: time.Millisecond, rate: 60_000}),
		overloaded("overload-gcra", overload{keep: 2 * time.Millisecond, rate: 60_000, gcra: true}),
		overloaded("overload-heavy", overload{keep: 4 * time.Millisecond, rate: 90_000}),
		overloaded("overload-heavy-gcra", overload{keep: 4 * time.Millisecond, rate: 90_000, gcra: true}),
		{name: "random", about: "random faults"},
	}
}

func scenarioNames() (names []string) {
	for _, sc := range scenarios() {
		names = append(names, sc.name)
	}
	return names
}

func chooseScenarios(text string) (chosen []scenario, err error) {
	all := scenarios()
	if text == "all" {
		return all, nil
	}
	for name := range strings.SplitSeq(text, ",") {
		i := slices.IndexFunc(all, func(sc scenario) bool { return sc.name == name })
		if i < 0 {
			return nil, fmt.Errorf("-scenario: there is no %q, only %s", name, strings.Join(scenarioNames(), ", "))
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// play plays one scenario and measures it.
func play(ctx context.Context, s settings, sc scenario) (outcome, error) {
	if sc.name == "random" {
		return playSchedules(ctx, s, sc)
	}
	return playOne(ctx, s, sc)
}

func playOne(ctx context.Context, s settings, sc scenario) (o outcome, err error) {
	f, err := newFleet(ctx, s, sc)
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	if err := f.know(len(sc.weights)); err != nil {
		return o, err
	}
	f.began = now()
	if err := sc.play(f); err != nil {
		return o, err
	}
	f.end = now()
	calls, err := f.gather()
	if err != nil {
		return o, err
	}
	sc.judge(f, calls)
	return f.outcome(calls), nil
}

func dropAll(f *fleet) (err error) {
	for _, p := range f.proxies {
		err = errors.Join(err, p.Drop())
	}
	return err
}

// delayAll makes answers take 0.68 to 1.08 times the deadline.
func delayAll(f *fleet) (err error) {
	ms := int(f.Deadline.Milliseconds())
	for _, p := range f.proxies {
		err = errors.Join(err, p.Delay(ms*44/100, ms*10/100))
	}
	return err
}

func healAll(f *fleet) error {
	for _, p := range f.proxies {
		p.Heal()
	}
	return nil
}

// A step is a part of a scenario.
type step func(*fleet) error

// inOrder returns a step that takes steps in order, and stops at the first that fails.
func inOrder(steps ...step) step {
	return func(f *fleet) error {
		for _, s := range steps {
			if err := s(f); err != nil {
				return err
			}
		}
		return nil
	}
}

// windows returns a step that waits for n windows.
func windows(n float64) step {
	return func(f *fleet) error { return f.wait(time.Duration(n * float64(f.Window))) }
}

// anOutage waits for the length of the outage.
func anOutage(f *fleet) error { return f.wait(f.Outage) }

// settleIn offers the scenario's load until all earlier requests have left the window.
var settleIn = inOrder(func(f *fleet) error { return f.offer(f.Load, f.weights) }, windows(2.2))

// lose returns a step that marks the cut and then makes it.
func lose(how step) step {
	return func(f *fleet) error {
		f.cut = now()
		return how(f)
	}
}

// regain returns a step that marks the end of the outage, ends it, and waits until all instances are back.
func regain(how step) step {
	return func(f *fleet) error {
		f.up = now()
		if err := how(f); err != nil {
			return err
		}
		return f.reconnected()
	}
}

// outage returns a whole outage: traffic, loss, recovery, and two more windows.
func outage(how, back step) step {
	return inOrder(settleIn, lose(how), anOutage, regain(back), windows(2))
}

const cutOff = 1 // the instance that is cut off in the scenario one-cut-off

// offerEachAll offers each instance enough load to use up the limit alone.
func offerEachAll(f *fleet) error { return f.offer(f.Load*float64(len(even)), even) }

// playMostCutOff cuts off all instances except one at once, for longer than their membership lasts.
var playMostCutOff = inOrder(offerEachAll, windows(2.2), lose(func(f *fleet) (err error) {
	for _, p := range f.proxies[1:] {
		err = errors.Join(err, p.Drop())
	}
	return err
}), anOutage, regain(healAll), windows(2))

// playCutOffInTurn cuts off all instances except one, one after the other. Meanwhile the others continue to use up
// the limit.
var playCutOffInTurn = inOrder(offerEachAll, windows(2.2), lose(func(f *fleet) error {
	for _, p := range f.proxies[1:] {
		if err := p.Drop(); err != nil {
			return err
		}
		if err := f.wait(f.Window * 3 / 2); err != nil {
			return err
		}
	}
	return nil
}), regain(healAll), windows(2))

var playRollingRestart = inOrder(settleIn, lose(dropAll), func(f *fleet) error {
	for i := range f.instances {
		if err := f.wait(f.Window); err != nil {
			return err
		}
		if err := f.restart(i); err != nil {
			return err
		}
		if err := f.offerOne(i, f.Load*f.weights[i]); err != nil {
			return err
		}
	}
	return nil
}, windows(1), regain(healAll), windows(1))

// playFlapping makes Redis come and go too often for the breaker to close for long.
var playFlapping = inOrder(settleIn, lose(func(f *fleet) error {
	const every = 300 * time.Millisecond
	for range f.Outage / (2 * every) {
		f.server.Pause()
		if err := f.wait(every); err != nil {
			return err
		}
		f.server.Resume()
		if err := f.wait(every); err != nil {
			return err
		}
	}
	return nil
}), regain(func(*fleet) error { return nil }), windows(2))

const scaledUp = 12 // instances in the scenario scale-up

// playScaleUp adds instances that have never heard of the fleet. The old instances keep their traffic, and each new
// one could use up half of the limit.
var playScaleUp = inOrder(settleIn, lose(dropAll), windows(0.5), func(f *fleet) error {
	for i := len(f.instances); i < scaledUp; i++ {
		if err := f.add(proxy.Proxy.Drop); err != nil {
			return err
		}
		if err := f.offerOne(i, 0.5); err != nil {
			return err
		}
	}
	return nil
}, anOutage, regain(healAll), windows(2))

var playGrowth = inOrder(func(f *fleet) error {
	for i := range f.instances {
		if err := f.offerOne(i, f.Load/float64(len(f.instances))); err != nil {
			return err
		}
		if err := f.wait(min(f.Window/4, time.Second/2)); err != nil {
			return err
		}
	}
	return nil
}, lose(dropAll), anOutage, regain(healAll), windows(1))

var playMoved = inOrder(settleIn, lose(dropAll), offerEachAll, anOutage, regain(healAll), windows(1))

// playFlushAll makes Redis lose its data late in the window, when the limit is used up.
var playFlushAll = inOrder(func(f *fleet) error { return f.offer(f.Load, f.weights) }, windows(2.7), func(f *fleet) error {
	f.cut = now()
	f.up = f.cut
	return f.flushAll()
}, windows(2))

func (f *fleet) flushAll() error {
	client := f.server.Client(f.bed)
	return client.FlushAll(f.ctx).Err()
}
