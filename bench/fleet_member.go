package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/tierlimit/tierlimit/tiered"
)

// memberVariable is set in the environment of a fleet's processes.
const memberVariable = "TIERLIMIT_BENCH_MEMBER"

// beMember is main for a fleet's process. It returns the exit status.
func beMember() int {
	// The process ends when its standard input is closed. Signals to the process group are left to the parent.
	signal.Ignore(os.Interrupt, syscall.SIGTERM)
	if err := obey(context.Background(), os.Stdin, os.NewFile(3, "results")); err != nil {
		fmt.Fprintln(os.Stderr, "bench: a process of the fleet:", err)
		return 1
	}
	return 0
}

// obey carries out orders until its input ends.
func obey(ctx context.Context, in io.Reader, out io.Writer) error {
	tiered.LogOfRedis(nil)
	orders, results := json.NewDecoder(in), json.NewEncoder(out)
	workloads := make(map[string]workload) // making many keys takes a while
	var (
		s *subject
		w workload
	)
	for {
		var (
			o   order
			r   result
			err error
		)
		if err := orders.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		switch o.Do {
		case "open":
			s, w, err = o.open(ctx, workloads)
		case "drive":
			r = o.drive(ctx, s, &w)
		case "close":
			err = s.close()
		}
		if err != nil {
			r.Err = err.Error()
		}
		if err := results.Encode(r); err != nil {
			return err
		}
	}
}

func (o *order) open(ctx context.Context, workloads map[string]workload) (*subject, workload, error) {
	o.Settings.only = anything
	for _, g := range groups(o.Settings, o.Run) {
		if g.name != o.Workload {
			continue
		}
		for _, c := range g.contenders {
			if c.name == o.Contender {
				w, made := workloads[g.name]
				if !made {
					w = g.workload()
					workloads[g.name] = w
				}
				s, err := open(ctx, c, environment{url: o.URL, nodes: o.Nodes, pool: o.Settings.Pool}, &w)
				return s, w, err
			}
		}
	}
	return nil, workload{}, fmt.Errorf("there is no %s in %s", o.Contender, o.Workload)
}

// counted counts the calls that end between two moments.
type counted struct {
	mu          sync.Mutex
	load        load
	from, until time.Time
}

func (c *counted) call(ctx context.Context, d decide, key string, since time.Time) (goOn bool) {
	what, err := d(ctx, key)
	ended := time.Now()
	switch {
	case ended.Before(c.from):
	case ended.After(c.until):
		return false
	default:
		c.mu.Lock() // little contention: mostly one goroutine runs at a time
		c.load.calls[what]++
		c.load.latency.add(ended.Sub(since))
		if c.load.firstErr == nil {
			c.load.firstErr = err
		}
		c.mu.Unlock()
	}
	return true
}

// drive has callers call the subject until the end of the measurement.
func (o *order) drive(ctx context.Context, s *subject, w *workload) (r result) {
	c := counted{from: time.UnixMicro(o.From), until: time.UnixMicro(o.Until)}
	// All processes share the wall clock. Times computed from now are monotonic.
	now := time.Now()
	c.from, c.until = now.Add(c.from.Sub(now)), now.Add(c.until.Sub(now))
	opened, cpu := s.timesOpened(), time.Duration(0)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		time.Sleep(time.Until(c.from))
		cpu -= processCPU()
		time.Sleep(time.Until(c.until))
		cpu += processCPU()
	}()
	if time.Sleep(time.UnixMicro(o.Begin).Sub(now)); time.Now().After(c.from) {
		return result{Late: true}
	}
	var running sync.WaitGroup
	d, seed := s.decides[0], o.Member*10_000
	if o.Rate > 0 {
		o.offer(ctx, d, w.picker(seed), &c, &running)
	} else {
		for i := range o.Callers {
			pick := w.picker(seed + i)
			running.Go(func() {
				ctx, cancel := callerContext(ctx)
				defer cancel()
				for c.call(ctx, d, pick(), time.Now()) {
				}
			})
		}
	}
	running.Wait()
	<-ended
	r = result{Calls: c.load.calls, Latency: make(map[int]uint32), CPU: cpu, Opened: s.timesOpened() - opened}
	for bucket, n := range c.load.latency.counts {
		if n > 0 {
			r.Latency[bucket] = n
		}
	}
	if err := c.load.firstErr; err != nil {
		r.FirstErr = err.Error()
	}
	return r
}

// offer makes calls that do not wait for each other, at random moments (a Poisson process), as requests arrive at a
// server. Each call has its own goroutine and context.
func (o *order) offer(ctx context.Context, d decide, pick func() string, c *counted, running *sync.WaitGroup) {
	random := rand.New(rand.NewPCG(3, uint64(o.Member)))
	for at := time.Now(); at.Before(c.until); at = at.Add(time.Duration(random.ExpFloat64() / o.Rate * float64(time.Second))) {
		if wait := time.Until(at); wait > 0 {
			time.Sleep(wait)
		}
		key, came := pick(), time.Now()
		running.Go(func() {
			ctx, cancel := callerContext(ctx)
			defer cancel()
			c.call(ctx, d, key, came)
		})
	}
}
