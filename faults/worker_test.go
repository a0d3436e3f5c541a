//go:build unix

package faults

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// workerVariable is the environment variable that turns the test binary into a worker: a process with a limiter of
// its own that shares limits with others. Its value is the worker's task.
const workerVariable = "FAULTS_WORKER"

// task tells a worker what to do.
type task struct {
	Addr, Prefix string
	Worker       int
	Commanded    bool // see obey
	Holds        bool // see holdSlot

	// Name and Journal are for a holder, whose Redis is at URL: see hold.
	Name, Journal, URL string
}

// open makes the worker's limiter, and waits until Redis decides alone. On a busy machine, a limiter may not reach
// Redis within the second for which it waits when it is made.
func (t task) open(deadline time.Duration) (*tiered.Limiter, error) {
	l, err := tiered.OpenURL("redis://"+t.Addr, tiered.Prefix(t.Prefix), tiered.Deadline(deadline), tiered.Logger(slog.New(slog.DiscardHandler)),
		tiered.LedgerKeys(10_000), tiered.RememberDenials(10_000))
	if err != nil {
		return nil, err
	}
	for began := time.Now(); l.State() != tiered.Healthy; time.Sleep(time.Millisecond) {
		if time.Since(began) > time.Minute {
			return nil, errors.Join(errors.New("not within a minute: Redis decides alone"), l.Close())
		}
	}
	return l, nil
}

const (
	goroutines = 16   // of each worker
	requests   = 200  // of each goroutine, before it uses up the rest
	quota      = 2000 // of each key
	keys       = 2    // of each rule
)

// subjects are the rules that workers share. Under none of them does a unit come back within the run, so each key
// grants its quota exactly.
var subjects = []struct {
	limit     limit.Limit
	algorithm limit.Algorithm
}{
	{limit.PerDay(quota), limit.SlidingLog()},
	{limit.PerDay(quota), limit.SlidingCounter(limit.DefaultBuckets, limit.Strict)},
	{limit.Per(quota, limit.MaxWindow).WithBurst(quota), limit.GCRA()},
	{limit.Per(quota, limit.MaxWindow), limit.FixedWindow()},
}

// operation is one decision as its caller saw it: the call and its answer, with their times on the machine's
// monotonic clock.
type operation struct {
	Subject, Key, Client int
	Cost                 int64
	Call, Return         int64
	Allowed              bool
	Remaining            int64
	Tier                 limit.Tier
}

// work is a worker's main function. It says that it is ready, waits for a line on its standard input, makes
// requests, and writes their results to its standard output.
func work(encoded string) (err error) {
	var t task
	if err := json.Unmarshal([]byte(encoded), &t); err != nil {
		return err
	}
	if t.Commanded {
		return obey(t)
	} else if t.Holds {
		return holdSlot(t)
	} else if t.Journal != "" {
		return hold(t)
	}
	l, err := t.open(patient)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	rules, err := openSubjects(l)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}

	var all []operation
	var failed error
	var mu sync.Mutex // guards all and failed
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			operations, err := request(rules, t.Worker*goroutines+g)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, operations...)
			failed = errors.Join(failed, err)
		})
	}
	wg.Wait()
	if failed != nil {
		return failed
	}
	return json.NewEncoder(os.Stdout).Encode(all)
}

func openSubjects(l *tiered.Limiter) (rules []*tiered.Rule, err error) {
	for _, s := range subjects {
		r, err := l.Rule(s.algorithm.Name(), s.limit, tiered.Use(s.algorithm))
		if err != nil {
			return nil, err
		}
		rules = append(rules, r)
	}
	return rules, nil
}

// request makes one goroutine's requests: first at random, and then unit by unit for the rest of each key.
func request(rules []*tiered.Rule, client int) (operations []operation, err error) {
	random := rand.New(rand.NewPCG(uint64(client), 1))
	ask := func(o operation) (allowed bool) {
		if err != nil {
			return false
		}
		var d limit.Decision
		o.Client, o.Call = client, monotonic()
		d, err = rules[o.Subject].AllowN(context.Background(), fmt.Sprint("key", o.Key), o.Cost)
		o.Return = monotonic()
		o.Allowed, o.Remaining, o.Tier = d.Allowed, d.Remaining, d.Tier
		operations = append(operations, o)
		return d.Allowed
	}
	for range requests {
		cost := 1 + random.Int64N(3)
		if random.IntN(50) == 0 {
			cost = quota - random.Int64N(3) // a denial of so many units says nothing about others
		}
		ask(operation{Subject: random.IntN(len(rules)), Key: random.IntN(keys), Cost: cost})
	}
	for subject := range rules {
		for key := range keys {
			for ask(operation{Subject: subject, Key: key, Cost: 1}) {
			}
		}
	}
	return operations, err
}

// monotonic returns the time of the machine's monotonic clock, which all its processes share, in nanoseconds.
func monotonic() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err) // happens only for a clock that does not exist
	}
	return now.Nano()
}
