package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tierlimit/tierlimit/bench/internal/proxy"
	"github.com/tierlimit/tierlimit/internal/redistest"
)

// fleet is a Redis server, instances, and a proxy between the server and each instance.
type fleet struct {
	settings
	ctx       context.Context
	scenario  scenario
	bed       *testbed
	server    *redistest.Server
	duty      duty
	proxies   []proxy.Proxy
	instances []*instance // the current ones
	replaced  []*instance // ended and replaced by others
	started   uint64      // number of instances started, for their seeds

	began, cut, up, end int64 // marks of the scenario, µs
	weights             []float64
	notes               []string
	finals              []*final
	checks              []check
}

func newFleet(ctx context.Context, s settings, sc scenario) (*fleet, error) {
	bed, err := newTestbed()
	if err != nil {
		return nil, err
	}
	f := &fleet{settings: s, ctx: ctx, scenario: sc, bed: bed, weights: sc.weights}
	f.duty = duty{Quota: s.Quota, Window: s.Window, Deadline: s.Deadline, FleetSize: len(sc.weights), LedgerKeys: 10_000, Baselines: sc.baselines}
	if sc.duty != nil {
		sc.duty(s, &f.duty)
	}
	f.Quota = f.duty.Quota
	if f.server, err = bed.startServer(); err != nil {
		return nil, errors.Join(err, f.close())
	}
	for range sc.weights {
		if err := f.add(nil); err != nil {
			return nil, errors.Join(err, f.close())
		}
	}
	return f, nil
}

// add starts one more instance behind a new proxy. prepare, if not nil, may first do something to the proxy.
func (f *fleet) add(prepare func(proxy.Proxy) error) error {
	i := len(f.instances)
	p, err := proxy.Start(f.server.Addr())
	if err != nil {
		return err
	}
	f.proxies = append(f.proxies, p)
	if prepare != nil {
		if err := prepare(p); err != nil {
			return err
		}
	}
	in, err := f.start(i)
	if err != nil {
		return err
	}
	f.instances = append(f.instances, in)
	return nil
}

func (f *fleet) start(i int) (*instance, error) {
	d := f.duty
	d.Redis = f.proxies[i].Addr()
	f.started++
	d.Seed = f.Seed + f.started
	return startInstance(i, f.bed.dir, d)
}

// restart ends an instance in good order, and starts another in its place.
func (f *fleet) restart(i int) error {
	old := f.instances[i]
	if _, err := old.end(); err != nil {
		return err
	}
	in, err := f.start(i)
	if err != nil {
		return err
	}
	f.replaced = append(f.replaced, old)
	f.instances[i] = in
	return nil
}

// close ends everything that still runs.
func (f *fleet) close() error {
	for _, in := range f.instances {
		in.kill()
	}
	err := f.bed.close()
	for _, p := range f.proxies {
		p.Stop()
	}
	return err
}

// wait waits, unless the context ends.
func (f *fleet) wait(d time.Duration) error {
	select {
	case <-f.ctx.Done():
		return f.ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// eventually waits until a condition holds for the news of all instances.
func (f *fleet) eventually(what string, holds func(news) bool) error {
	for deadline := time.Now().Add(30 * time.Second); ; {
		if f.all(holds) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("never happened: %s", what)
		}
		if err := f.wait(5 * time.Millisecond); err != nil {
			return err
		}
	}
}

// all reports whether a condition holds for the news of all instances.
func (f *fleet) all(holds func(news) bool) bool {
	return !slices.ContainsFunc(f.instances, func(in *instance) bool { return !holds(in.news()) })
}

func (f *fleet) know(n int) error {
	return f.eventually("all instances know of each other", func(w news) bool { return w.Fleet == n })
}

func (f *fleet) reconnected() error {
	return f.eventually("all instances are back at Redis", func(w news) bool { return !w.Degraded })
}

// offer has the instances together offer load times the limit of one key, divided by weights.
func (f *fleet) offer(load float64, weights []float64) error {
	for i := range weights {
		if err := f.offerOne(i, load*weights[i]); err != nil {
			return err
		}
	}
	return nil
}

func (f *fleet) offerOne(i int, load float64) error {
	perSecond := float64(f.Quota) / f.Window.Seconds()
	return f.instances[i].order(order{Rate: load * perSecond, Heavy: 1})
}

// gather ends the instances and returns their logged calls, ordered by time.
func (f *fleet) gather() (calls []call, err error) {
	for _, in := range slices.Concat(f.replaced, f.instances) {
		final, err := in.end()
		if err != nil {
			return nil, err
		}
		logged, err := readCalls(in.log, in.index)
		if err != nil {
			return nil, err
		}
		f.finals = append(f.finals, final)
		calls = append(calls, logged...)
	}
	slices.SortFunc(calls, func(a, b call) int { return int(a.at - b.at) })
	return calls, nil
}

func (f *fleet) note(format string, args ...any) {
	f.notes = append(f.notes, fmt.Sprintf(format, args...))
}
