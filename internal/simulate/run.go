package simulate

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/tierlimit/tierlimit/internal/model"
	"github.com/tierlimit/tierlimit/internal/textbook"
	"github.com/tierlimit/tierlimit/limit"
)

// Parts is the number of equal parts of time in which errors are counted.
const Parts = 96

// Errors counts wrong decisions: those that differ from the exact log's.
type Errors struct{ Allowed, Denied int }

// Total returns the number of wrong decisions of both kinds.
func (e Errors) Total() int { return e.Allowed + e.Denied }

func (e *Errors) add(f Errors) {
	e.Allowed += f.Allowed
	e.Denied += f.Denied
}

// Worst is the fullest window of all keys: the units that one key was granted in the window that ends at End, the
// time of a grant.
type Worst struct {
	Units int64
	Key   int   // its number
	End   int64 // µs since the epoch
}

// Result is what an algorithm did with the traffic.
type Result struct {
	Allowed  int // requests
	Wrong    Errors
	OverTime [Parts]Errors // wrong decisions in each part of the traffic's time
	Worst    Worst
}

func (r *Result) add(o *Result) {
	r.Allowed += o.Allowed
	r.Wrong.add(o.Wrong)
	for i := range r.OverTime {
		r.OverTime[i].add(o.OverTime[i])
	}
	// The workers process the keys in any order; the result must not depend on it.
	if o.Worst.Units > r.Worst.Units || o.Worst.Units == r.Worst.Units && o.Worst.Key < r.Worst.Key {
		r.Worst = o.Worst
	}
}

// Decider decides requests of one unit of one key, each at a time in µs since the epoch.
type Decider func(at int64) (allowed bool)

// longLog is the largest quota for which a log is run as a model, which looks at every unit that it holds several
// times per decision. For larger quotas the textbook's log is used, which decides the same.
const longLog = 1_000

// NewDecider returns the decider of an algorithm. The error is like that of [Traffic.Run].
func NewDecider(l limit.Limit, a limit.Algorithm) (Decider, error) {
	m, err := model.New(l, a)
	if err != nil {
		return nil, err
	}
	if a.Same(limit.SlidingLog()) && l.Quota() > longLog {
		return newExact(l), nil
	}
	return func(at int64) bool { return m.TakeUpTo(at, 1).Allowed }, nil
}

func newExact(l limit.Limit) Decider {
	log := textbook.New(l.Quota(), l.Window())
	return func(at int64) bool { return log.Allow("", at) }
}

// Run decides every request of the traffic by the algorithm. It uses all processors, and each of them works on one
// key at a time. progress, if not nil, is called by any of them with a number of further requests done. The error
// wraps [limit.ErrInvalidLimit] or [limit.ErrInvalidAlgorithm], or is ctx's.
func (t *Traffic) Run(ctx context.Context, l limit.Limit, a limit.Algorithm, progress func(requests int)) (*Result, error) {
	if _, err := NewDecider(l, a); err != nil {
		return nil, err
	}
	total := &Result{}
	var mu sync.Mutex // guards total
	var next atomic.Int64
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			own := Result{}
			for ctx.Err() == nil {
				key := int(next.Add(1)) - 1
				if key >= t.Keys() {
					break
				}
				t.runKey(ctx, key, l, a, &own, progress)
			}
			mu.Lock()
			defer mu.Unlock()
			total.add(&own)
		})
	}
	workers.Wait()
	return total, ctx.Err()
}

// progressEvery is the number of a key's requests between two reports of progress.
const progressEvery = 4096

func (t *Traffic) runKey(ctx context.Context, key int, l limit.Limit, a limit.Algorithm, r *Result, progress func(int)) {
	decide, err := NewDecider(l, a)
	if err != nil {
		return // Run has checked that there is no error
	}
	exact := newExact(l)
	worst := textbook.NewWorst(l.Window())
	for i, request := range t.groups[key] {
		at := t.at[request]
		allowed, right := decide(at), exact(at)
		if allowed {
			r.Allowed++
			worst.Grant("", at)
			if units := worst.Max(); units > r.Worst.Units || units == r.Worst.Units && key < r.Worst.Key {
				r.Worst = Worst{units, key, at}
			}
		}
		if allowed != right {
			wrong := Errors{Denied: 1}
			if allowed {
				wrong = Errors{Allowed: 1}
			}
			r.Wrong.add(wrong)
			r.OverTime[t.part(request, Parts)].add(wrong)
		}
		if (i+1)%progressEvery == 0 {
			if ctx.Err() != nil {
				return
			}
			if progress != nil {
				progress(progressEvery)
			}
		}
	}
	if progress != nil {
		progress(len(t.groups[key]) % progressEvery)
	}
}

// Peaks returns, for each key, the most units that counted at once under the exact log.
func (t *Traffic) Peaks(l limit.Limit) []int64 {
	peaks := make([]int64, t.Keys())
	for key, requests := range t.groups {
		exact, worst := newExact(l), textbook.NewWorst(l.Window())
		for _, request := range requests {
			if at := t.at[request]; exact(at) {
				worst.Grant("", at)
			}
		}
		peaks[key] = worst.Max()
	}
	return peaks
}
