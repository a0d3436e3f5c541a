package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

// fleet is processes of this program that act as the instances of a service, each with GOMAXPROCS=1: many processes
// with few decisions in flight each. They are started once, and open and drive one subject after another.
type fleet struct {
	members []*member
}

// member is one of the processes. It obeys orders on its standard input, one at a time, and ends when the input is
// closed. It answers on a separate pipe, its file 3, because the subject may print on the standard output.
type member struct {
	process *exec.Cmd
	orders  *json.Encoder
	results *json.Decoder
	end     func() error // closes its standard input
}

// order tells a member to open a subject, drive it, or close it.
type order struct {
	Do string // "open", "drive", "close"

	// For "open":
	Settings            settings
	URL, Run            string
	Nodes               []string `json:",omitempty"` // of a Cluster, which replace the URL
	Workload, Contender string   `json:",omitempty"`

	// For "drive":
	Member  int // the member's number
	Callers int
	Rate    float64 // calls a second of this member; 0: callers wait for their answers
	// Begin is when calls begin. Calls that end between From and Until are counted. µs since the epoch.
	Begin, From, Until int64
}

// result is a member's answer to an order.
type result struct {
	Err      string
	Late     bool // the order to drive came too late, because the machine stood still
	Calls    [outcomes]uint64
	FirstErr string
	Latency  map[int]uint32 // the non-empty buckets of the histogram
	CPU      time.Duration
	Opened   int
}

// startFleet starts n processes.
func startFleet(ctx context.Context, n int) (*fleet, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	f := &fleet{}
	for range n {
		m := &member{process: exec.CommandContext(ctx, self)}
		m.process.Env = append(os.Environ(), memberVariable+"=1", "GOMAXPROCS=1")
		m.process.Stderr = os.Stderr
		in, err := m.process.StdinPipe()
		if err != nil {
			return nil, errors.Join(err, f.stop())
		}
		out, itsOut, err := os.Pipe()
		if err != nil {
			return nil, errors.Join(err, f.stop())
		}
		m.process.ExtraFiles = []*os.File{itsOut}
		m.orders, m.results, m.end = json.NewEncoder(in), json.NewDecoder(out), in.Close
		err = redistest.StartTied(m.process)
		if err := errors.Join(err, itsOut.Close()); err != nil {
			return nil, errors.Join(err, f.stop())
		}
		f.members = append(f.members, m)
	}
	return f, nil
}

// stop ends the processes by closing their standard input.
func (f *fleet) stop() (err error) {
	for _, m := range f.members {
		err = errors.Join(err, m.end(), m.process.Wait())
	}
	return err
}

// tell gives an order to the first n members. It returns their results when all have carried out the order.
func (f *fleet) tell(n int, o order) ([]result, error) {
	for i, m := range f.members[:n] {
		o.Member = i
		if err := m.orders.Encode(o); err != nil {
			return nil, fmt.Errorf("process %d: %w", i+1, err)
		}
	}
	results := make([]result, n)
	var err error
	for i, m := range f.members[:n] {
		if e := m.results.Decode(&results[i]); e != nil {
			err = errors.Join(err, fmt.Errorf("process %d: %w", i+1, e))
		} else if results[i].Err != "" {
			err = errors.Join(err, fmt.Errorf("process %d: %s", i+1, results[i].Err))
		}
	}
	return results, err
}

// toldBefore is how long before the beginning the members get the order to drive, at first. A busy machine may need
// longer to tell all of them.
const toldBefore = 100 * time.Millisecond

// measureFleet measures a subject from many processes at the same time: what they and Redis did between two moments.
// All processes together make rate calls a second. If rate is 0, callers wait for their answers.
func (b *bench) measureFleet(ctx context.Context, at place, g *group, s *subject, z size, rate float64, span time.Duration) (m measurement, err error) {
	for before := toldBefore; before < 50*toldBefore; before *= 2 {
		m, err = b.driveFleet(ctx, at, g, s, z, rate, span, before)
		if !errors.Is(err, errLate) && !errors.Is(err, errNothingEnded) {
			break
		}
	}
	return m, err
}

var (
	errLate = errors.New("processes got the order to begin too late, or the counters of Redis were read too late: the machine is too busy; try again while nothing else runs")
	// A busy machine may stand still for a whole span of some milliseconds.
	errNothingEnded = errors.New("no call ended while it was measured: measure for longer (-seconds)")
)

func (b *bench) driveFleet(ctx context.Context, at place, g *group, s *subject, z size, rate float64, span, before time.Duration) (measurement, error) {
	n := z.processes
	open := order{Do: "open", Settings: b.settings, URL: b.env.url, Nodes: at.env.nodes, Run: b.run, Workload: g.name, Contender: s.name}
	if _, err := b.fleet.tell(n, open); err != nil {
		return measurement{}, err
	}
	// All members must hear of it before the first begins, because this process gets no time after that.
	begin := time.Now().Add(before)
	from := begin.Add(g.warmUp(span))
	until := from.Add(span)
	done := make(chan error, 1)
	var results []result
	go func() {
		var err error
		results, err = b.fleet.tell(n, order{Do: "drive", Callers: z.callers, Rate: rate / float64(n), Begin: begin.UnixMicro(), From: from.UnixMicro(), Until: until.UnixMicro()})
		done <- err
	}()
	m := newMeter(at.controls...)
	time.Sleep(time.Until(from))
	err := m.start(ctx)
	late := time.Now().After(until) // Redis's part of the measurement has passed
	time.Sleep(time.Until(until))
	err = errors.Join(err, m.stop(ctx), <-done)
	if err != nil {
		return measurement{}, err
	}
	if _, err := b.fleet.tell(n, order{Do: "close"}); err != nil {
		return measurement{}, err
	}

	if late {
		return measurement{}, errLate
	}
	l := &load{took: span}
	m.cpu = 0
	opened := 0
	for i := range results {
		r := &results[i]
		if r.Late {
			return measurement{}, errLate
		}
		part := load{calls: r.Calls}
		for bucket, n := range r.Latency {
			part.latency.counts[bucket] += n
			part.latency.total += uint64(n)
		}
		if r.FirstErr != "" {
			part.firstErr = errors.New(r.FirstErr)
		}
		l.add(&part)
		m.cpu += r.CPU
		opened += r.Opened
	}
	if l.latency.total == 0 {
		return measurement{}, errNothingEnded
	}
	measured := m.measurement(s, l, opened)
	// Allocations are counted in this process, which makes none of the calls.
	measured.values[allocations], measured.values[allocatedBytes] = math.NaN(), math.NaN()
	return measured, ctx.Err()
}
