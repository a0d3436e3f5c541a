package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"

	"github.com/redis/go-redis/v9"
)

// bench is one run of the benchmark.
type bench struct {
	settings settings
	env      environment
	run      string // the prefix of all keys
	groups   []group
	memories []contender
	renewals []renewal
	control  *redis.Client // reads the server's counters
	fleet    *fleet        // nil: none is needed
	progress *progress
	report   report
}

func newBench(ctx context.Context, s settings, url string, w io.Writer) (*bench, error) {
	control, err := newControl(url)
	if err != nil {
		return nil, err
	}
	b := &bench{
		settings: s,
		env:      environment{url: url, pool: s.Pool},
		run:      rand.Text()[:6],
		control:  control,
		report:   report{Settings: s},
	}
	b.groups, b.memories, b.renewals = groups(s, b.run), inMemory(s), renewals(s)
	if err := b.checkOnly(); err != nil {
		return nil, errors.Join(err, b.close())
	}
	if b.report.Machine, err = thisMachine(ctx, control); err != nil {
		return nil, errors.Join(err, b.close())
	}
	if n := mostProcesses(b.groups); n > 0 && s.Growth == "" {
		if b.fleet, err = startFleet(ctx, n); err != nil {
			return nil, errors.Join(err, b.close())
		}
	}
	b.progress = newProgress(w, b.planned())
	return b, nil
}

// checkOnly returns an error if -only leaves nothing to measure, or leaves out what something else is measured with.
func (b *bench) checkOnly() error {
	if b.groups == nil && b.memories == nil && b.renewals == nil {
		return fmt.Errorf("%w: -only %s matches nothing", errUsage, b.settings.Only)
	}
	for i := range b.groups {
		g := &b.groups[i]
		for _, z := range g.sizes {
			if rate := label(fleetUniform, z, nameRedisRate); g.offered > 0 && b.chosen(g, z) != nil && !b.settings.only.MatchString(rate) {
				return fmt.Errorf("%w: how many calls come in %s is a part of what %s decides: let -only measure that too", errUsage, g.name, rate)
			}
		}
	}
	return nil
}

func (b *bench) close() error {
	err := b.control.Close()
	if b.fleet != nil {
		err = errors.Join(err, b.fleet.stop())
	}
	return err
}

// planned returns about how long the whole run takes.
func (b *bench) planned() (total time.Duration) {
	if b.settings.Growth != "" {
		return b.settings.growthTakes()
	}
	for i := range b.groups {
		g := &b.groups[i]
		total += time.Duration(len(g.contenders)) * b.opening(g)
		for _, z := range g.sizes {
			rounds, span := b.rounds(g, z)
			total += time.Duration(rounds*len(b.chosen(g, z))) * g.takes(span)
		}
	}
	return total + time.Duration(len(b.memories))*memoryTakes + time.Duration(b.settings.Rounds*len(b.renewals))*b.settings.renewalsTake()
}

const memoryTakes = 100 * time.Millisecond

// rounds returns how often the contenders of a group are measured at a size, and for how long each time.
func (b *bench) rounds(g *group, z size) (rounds int, span time.Duration) {
	rounds, span = b.settings.Rounds, time.Duration(float64(b.settings.span)*g.share)
	if g.finer && z.callers == 1 {
		return 3 * rounds, span / 3
	}
	return rounds, span
}

// opening returns about how long it takes until a contender is ready to be measured.
func (b *bench) opening(g *group) time.Duration {
	takes := 50 * time.Millisecond
	if g.primed {
		takes += time.Duration(10*b.settings.Keys) * 3 * time.Microsecond
	}
	if g.prefill || g.useUp {
		takes += time.Duration(b.settings.Keys) * 12 * time.Microsecond
	}
	return takes
}

// chosen returns the contenders of a group that are measured at a size.
func (b *bench) chosen(g *group, z size) []contender {
	return b.settings.onlyContenders(g.name, []size{z}, g.contenders)
}

// measureAll measures everything, and puts the results into the report.
func (b *bench) measureAll(ctx context.Context) error {
	if err := b.measureMemories(ctx); err != nil {
		return err
	}
	for i := range b.groups {
		if err := b.measureGroup(ctx, &b.groups[i]); err != nil {
			return fmt.Errorf("%s: %w", b.groups[i].title, err)
		}
	}
	if err := b.measureRenewals(ctx); err != nil {
		return err
	}
	b.progress.done()
	return nil
}

func (b *bench) measureMemories(ctx context.Context) error {
	if b.memories != nil {
		b.progress.say("memory: bytes per key in Redis")
	}
	for i, c := range b.memories {
		w := usedUp(b.run, i)
		s, err := open(ctx, c, b.env, &w)
		if err != nil {
			return err
		}
		m, err := measureMemory(ctx, b.control, s, &w)
		if err := errors.Join(err, s.close()); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		b.report.Memories = append(b.report.Memories, m)
		b.progress.add(memoryTakes)
	}
	return nil
}

// open opens a contender. Each of our contenders is a fleet of its own in each workload: after an overload, the others of
// a fleet keep to their shares for as long as there may be units that Redis has not been charged for.
func open(ctx context.Context, c contender, e environment, w *workload) (*subject, error) {
	e.fleet = fmt.Sprintf("b%04x", uint16(crc32.ChecksumIEEE([]byte(w.name+"/"+c.name)))) // the same length for all
	s, err := c.open(ctx, e, w)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.name, err)
	}
	s.contender = c
	return s, nil
}

// place is where a group is measured, with a client for each server to read its counters.
type place struct {
	env      environment
	controls []*redis.Client
}

// measureGroup opens the contenders of a group, measures them, and closes them.
func (b *bench) measureGroup(ctx context.Context, g *group) (err error) {
	if g.overload != nil {
		if err := g.overload.maySleep(ctx, b.control); err != nil {
			b.progress.say("%s: left out, because the server must be started with --enable-debug-command yes: %v", g.name, err)
			return nil
		}
	}
	w := g.workload()
	w.name, w.primed = g.name, g.primed
	at := place{b.env, []*redis.Client{b.control}}
	if g.far {
		e, network, err := at.env.behindNetwork()
		if err != nil {
			return err
		}
		defer network.Stop()
		at.env = e
	}
	if g.masters > 0 {
		c, e := startCluster(ctx, b.settings.RedisServer, g.masters)
		if e != nil {
			return e
		}
		defer func() { err = errors.Join(err, c.stop()) }()
		at = place{c.environment(b.settings.Pool), c.controls}
	}
	subjects := make(map[string]*subject)
	defer func() {
		for _, s := range subjects {
			err = errors.Join(err, s.close())
		}
	}()
	for _, c := range g.contenders {
		if b.opening(g) > 500*time.Millisecond {
			b.progress.say("%s: preparing %s", g.name, c.name)
		}
		held := heap()
		s, err := open(ctx, c, at.env, &w)
		if err != nil {
			return err
		}
		subjects[c.name] = s
		if err := b.warm(ctx, g, s, &w); err != nil {
			return err
		}
		if g.prefill && g.sizes[0].processes == 0 { // the subjects of a fleet are in other processes
			b.report.Held = append(b.report.Held, held.until(heap(), g, c, len(w.keys)))
		}
		b.progress.add(b.opening(g))
	}
	if g.overload != nil {
		leave, e := startNeighbours(ctx, b.env.url, g.overload)
		if e != nil {
			return e
		}
		defer func() { err = errors.Join(err, leave()) }()
	}
	if g.busy > 0 {
		others, e := startBusy(ctx, b.control, g.busy)
		if e != nil {
			return e
		}
		defer func() { err = errors.Join(err, others.stop()) }()
	}
	for _, z := range g.sizes {
		var chosen []*subject
		for _, c := range b.chosen(g, z) {
			chosen = append(chosen, subjects[c.name])
		}
		if chosen == nil {
			continue
		}
		switch {
		case g.overload != nil:
			err = b.measureOverloads(ctx, g, chosen, &w, z)
		case g.inTurn:
			b.measureInTurns(ctx, g, chosen, &w, z)
		default:
			err = b.measureCells(ctx, at, g, chosen, &w, z)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// warm brings a subject into the state in which it is measured.
func (b *bench) warm(ctx context.Context, g *group, s *subject, w *workload) error {
	switch {
	case g.prefill && !s.stateless:
		return eachKey(ctx, s, s.decides[0], w.keys)
	case g.useUp && s.use == nil:
		_, err := drive(ctx, s, w, 64, 4*b.settings.span, nil)
		return err
	case g.useUp:
		use := func(ctx context.Context, key string) (outcome, error) {
			return denied, s.use(ctx, key, int(w.window.Quota()))
		}
		return eachKey(ctx, s, use, w.keys)
	}
	return nil
}

func (b *bench) measureCells(ctx context.Context, at place, g *group, subjects []*subject, w *workload, z size) error {
	rate := 0.0
	if g.offered > 0 {
		rate = g.offered * b.report.cell(fleetUniform, z, nameRedisRate).value(perSecond)
	}
	rounds, err := inRounds(b, g, subjects, z, func(s *subject, span time.Duration) (measurement, error) {
		if z.processes > 0 {
			return b.measureFleet(ctx, at, g, s, z, rate, span)
		}
		how := g.drive
		if how == nil {
			how = drive
		}
		return measure(ctx, b.control, s, w, how, z, span, g.warmUp(span))
	})
	if err == nil {
		b.report.Cells = append(b.report.Cells, newCells(g, w, subjects, z, rounds)...)
	}
	return err
}

func (b *bench) measureInTurns(ctx context.Context, g *group, subjects []*subject, w *workload, z size) {
	results := make([][]measurement, len(subjects))
	rounds, span := b.rounds(g, z)
	span *= time.Duration(len(subjects)) // each subject has a part of the span
	for round := range rounds {
		b.progress.say("%s, round %d of %d", g.name, round+1, rounds)
		for i, m := range measureInTurn(ctx, g.name, subjects, w, span, g.warmUp(span)) {
			results[i] = append(results[i], m)
		}
		b.progress.add(g.takes(span))
	}
	b.report.Cells = append(b.report.Cells, newCells(g, w, subjects, z, results)...)
}

func (b *bench) measureOverloads(ctx context.Context, g *group, subjects []*subject, w *workload, z size) error {
	rounds, err := inRounds(b, g, subjects, z, func(s *subject, span time.Duration) ([overloadMetrics]float64, error) {
		return measureOverload(ctx, s, w, z.callers, g.overload.times, span, g.warmUp(span))
	})
	for i := range rounds {
		b.report.Overloads = append(b.report.Overloads, newOverload(g, subjects[i], z.callers, rounds[i]))
	}
	return err
}

// inRounds measures every subject once per round. The order rotates by one each round, so that no subject gets all of
// the machine's slow moments, and no subject always follows the same one. The result is indexed by subject and round.
func inRounds[M any](b *bench, g *group, subjects []*subject, z size, measure func(*subject, time.Duration) (M, error)) ([][]M, error) {
	results := make([][]M, len(subjects))
	rounds, span := b.rounds(g, z)
	for round := range rounds {
		b.progress.say("%s, %s, round %d of %d", g.name, z.words(), round+1, rounds)
		for i := range subjects {
			at := (i + round) % len(subjects)
			m, err := measure(subjects[at], span)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", subjects[at].name, err)
			}
			results[at] = append(results[at], m)
			b.progress.add(g.takes(span))
		}
	}
	return results, nil
}
