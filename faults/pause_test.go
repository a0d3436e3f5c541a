//go:build unix

package faults

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// pausedRules are the rules that paused processes share: one without and one with leases.
func pausedRules(l *tiered.Limiter) (rules []*tiered.Rule, err error) {
	for _, r := range []struct {
		name    string
		options []tiered.RuleOption
	}{{"exact", nil}, {"leased", []tiered.RuleOption{tiered.Lease(50)}}} {
		rule, err := l.Rule(r.name, limit.Per(pausedQuota, pausedWindow), append(r.options, tiered.Use(limit.SlidingLog()))...)
		if err != nil {
			return nil, err
		}
		rules = append(rules, rule)
	}
	return rules, nil
}

const (
	pausedQuota  = 400
	pausedWindow = 2 * time.Second
	pausedFor    = 3 * time.Second // longer than anything that a process knows stays valid
)

// command tells a worker to let Callers callers ask for units of a rule. Each calls Times times, or for the time
// For, and pauses after each call.
type command struct {
	Rule    int
	Callers int
	Times   int
	For     time.Duration
	Every   time.Duration
}

// answer is a worker's report on a command.
type answer struct {
	Operations []operation
	State      string // state of the limiter after the command
	Error      string
}

// obey runs a worker that carries out commands, line by line.
func obey(t task) (err error) {
	l, err := t.open(time.Second)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	rules, err := pausedRules(l)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	lines, told := json.NewDecoder(bufio.NewReader(os.Stdin)), json.NewEncoder(os.Stdout)
	for {
		var c command
		if lines.Decode(&c) != nil {
			return nil // the end of the input
		}
		operations, err := c.run(rules)
		a := answer{Operations: operations, State: l.State().String()}
		if err != nil {
			a.Error = err.Error()
		}
		if err := told.Encode(a); err != nil {
			return err
		}
	}
}

func (c command) run(rules []*tiered.Rule) (all []operation, failed error) {
	var mu sync.Mutex // guards all and failed
	var callers sync.WaitGroup
	until := monotonic() + int64(c.For)
	for range c.Callers {
		callers.Go(func() {
			var own []operation
			var err error
			for i := 0; err == nil && (i < c.Times || monotonic() < until); i++ {
				var d limit.Decision
				o := operation{Subject: c.Rule, Cost: 1, Call: monotonic()}
				d, err = rules[c.Rule].Allow(context.Background(), "k")
				o.Return, o.Allowed, o.Tier = monotonic(), d.Allowed, d.Tier
				if c.Times > 0 || o.Allowed || o.Tier.Degraded() {
					own = append(own, o) // otherwise there are too many denials
				}
				time.Sleep(c.Every)
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, own...)
			failed = errors.Join(failed, err)
		})
	}
	callers.Wait()
	return all, failed
}

func (w *worker) tell(t *testing.T, c command) {
	t.Helper()
	line, err := json.Marshal(c)
	if err == nil {
		_, err = w.input.Write(append(line, '\n'))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (w *worker) hear(t *testing.T) (a answer) {
	t.Helper()
	line, err := w.output.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &a)
	}
	if err != nil || a.Error != "" {
		t.Fatalf("a worker's answer: %q, %v", a.Error, err)
	}
	return a
}

func (w *worker) ask(t *testing.T, c command) answer {
	t.Helper()
	w.tell(t, c)
	return w.hear(t)
}

// askWithin is ask for a command that must end before its first units leave the window. On a busy machine it may take
// longer, and is then repeated after all units have left.
func (w *worker) askWithin(t *testing.T, c command) (a answer) {
	t.Helper()
	redistest.Eventually(t, "a command takes less than a window", func() bool {
		a = w.ask(t, c)
		first, last := int64(math.MaxInt64), int64(0)
		for _, o := range a.Operations {
			first, last = min(first, o.Call), max(last, o.Return)
		}
		took := time.Duration(last - first)
		if took >= pausedWindow {
			t.Logf("a command took %v", took)
			time.Sleep(pausedWindow)
		}
		return took < pausedWindow
	})
	return a
}

// signal sends a signal that stops the process, as a debugger, a container's freezer or a long garbage collection
// does, or lets it continue.
func (w *worker) signal(t *testing.T, s unix.Signal) {
	t.Helper()
	if err := w.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

func allowed(operations []operation) (units int) {
	for _, o := range operations {
		if o.Allowed {
			units++
		}
	}
	return units
}

// Laws 2 and 11: after a pause, nothing that a process knew before it is still valid. Its leases have expired,
// units that it was denied may be free, and its share is that of a fleet it has not heard of for a long time.
func TestLaws2And11AfterAPauseNothingStaleIsUsed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	w := startWorker(t, task{Addr: server.Addr(), Prefix: "pause", Commanded: true})
	w.awaitReady(t)
	l := newLimiter(t, server.Client(t), "pause", tiered.Deadline(patient))
	rules, err := pausedRules(l)
	if err != nil {
		t.Fatal(err)
	}
	const exact, leased = 0, 1
	a := w.askWithin(t, command{Rule: exact, Callers: 1, Times: pausedQuota + 10})
	if last := a.Operations[len(a.Operations)-1]; allowed(a.Operations) != pausedQuota || last.Tier != limit.TierLocal {
		t.Fatalf("%d units granted, then %v", allowed(a.Operations), last)
	}
	// The process stands still in the middle of spending leased units.
	w.tell(t, command{Rule: leased, Callers: 1, For: pausedWindow/2 + pausedFor, Every: 10 * time.Millisecond})
	time.Sleep(pausedWindow / 4)
	w.signal(t, unix.SIGSTOP)
	time.Sleep(pausedFor)
	// This process uses up the whole limit, of which the leased units were a part.
	if d, err := rules[leased].AllowUpTo(t.Context(), "k", pausedQuota); err != nil || d.Granted != pausedQuota {
		t.Fatalf("%+v, %v", d, err)
	}
	resumed := monotonic()
	w.signal(t, unix.SIGCONT)
	before, after := 0, 0
	a = w.hear(t)
	for _, o := range a.Operations {
		switch {
		case o.Call >= resumed && o.Allowed:
			after++
		case o.Tier == limit.TierLease:
			before++
		}
	}
	if before == 0 || after > 0 || a.State != "healthy" {
		t.Errorf("%d units spent of leases before the pause; and %d after it, that others hold; %s", before, after, a.State)
	}
	if a := w.ask(t, command{Rule: exact, Callers: 4, Times: 5}); allowed(a.Operations) != 20 || a.State != "healthy" {
		t.Errorf("%d of 20 units granted that are free after the pause; %s", allowed(a.Operations), a.State)
	}
	// Redis is lost during a pause: the share is half of the limit, although the process used the limit alone
	// before.
	w.signal(t, unix.SIGSTOP)
	server.Kill()
	time.Sleep(pausedFor)
	w.signal(t, unix.SIGCONT)
	a = w.askWithin(t, command{Rule: exact, Callers: 4, Times: pausedQuota})
	if units := allowed(a.Operations); units < pausedQuota/2-1 || units > pausedQuota/2+1 {
		t.Errorf("%d units granted without Redis after a pause, want half of %d", units, pausedQuota)
	}
}

// Laws 1 and 4: under continuous traffic, pauses never let a window hold more than the algorithm states, and do not
// count as failures of Redis.
func TestLaws1And4PausesUnderTraffic(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	w := startWorker(t, task{Addr: server.Addr(), Prefix: "pauses", Commanded: true})
	w.awaitReady(t)
	l := newLimiter(t, server.Client(t), "pauses", tiered.Deadline(patient))
	rules, err := pausedRules(l)
	if err != nil {
		t.Fatal(err)
	}
	const callers, pauses, attempts = 8, 2, 10
	attempt := 1
	for i := 0; i < len(rules); attempt++ {
		rule := rules[i]
		c := command{Rule: i, Callers: callers, For: 3 * pausedWindow}
		w.tell(t, c)
		var own []operation
		var failed error
		var busy sync.WaitGroup
		longest := sleepsLate(3 * pausedWindow)
		busy.Go(func() { own, failed = c.run(rules) })
		for range pauses {
			time.Sleep(pausedWindow / 4)
			w.signal(t, unix.SIGSTOP)
			time.Sleep(pausedWindow * 3 / 4)
			w.signal(t, unix.SIGCONT)
		}
		a := w.hear(t)
		if busy.Wait(); failed != nil {
			t.Fatal(failed)
		}
		elsewhere := 0
		for _, o := range a.Operations {
			if o.Tier.Degraded() {
				elsewhere++
			}
		}
		most, bound := mostInAWindow(slices.Concat(own, a.Operations)), rule.WorstCase()+int64(elsewhere)
		if most > bound {
			t.Errorf("%s: %d units in a window, want up to %d", rule.Name(), most, bound)
		}
		// Callers that were waiting when the process stood still may have missed their deadlines.
		if little := most < pausedQuota/2; little || a.State == "outage" || elsewhere > pauses*callers {
			// A machine that stood still itself makes few decisions, and some of them too late.
			if late := <-longest; late > pausedWindow/20 && attempt < attempts {
				t.Logf("%s: again, since a goroutine slept %v too long: %d units, %d decisions made without Redis", rule.Name(), late, most, elsewhere)
				continue
			}
			t.Errorf("%s: %d units in a window, %d decisions made without Redis, then %s", rule.Name(), most, elsewhere, a.State)
		}
		i++
		t.Logf("%s: %d units in a window, up to %d; %d granted here, %d there, %d decisions without Redis", rule.Name(), most, bound, len(own), len(a.Operations), elsewhere)
	}
}

// sleepsLate sleeps again and again for the given time, and returns how much too long the longest sleep was: for so
// long the machine let a goroutine of this process wait.
func sleepsLate(within time.Duration) <-chan time.Duration {
	longest := make(chan time.Duration, 1)
	go func() {
		late := time.Duration(0)
		for began, last := time.Now(), time.Now(); last.Sub(began) < within; {
			time.Sleep(time.Millisecond)
			now := time.Now()
			late, last = max(late, now.Sub(last)-time.Millisecond), now
		}
		longest <- late
	}()
	return longest
}

// mostInAWindow returns the most units that were certainly granted within one window: those of calls that began and
// ended in it.
func mostInAWindow(operations []operation) (most int64) {
	granted := slices.DeleteFunc(operations, func(o operation) bool { return !o.Allowed })
	slices.SortFunc(granted, func(a, b operation) int { return int(a.Return - b.Return) })
	for i, first := range granted {
		units := int64(0)
		for _, o := range granted[i:] {
			if o.Return > first.Call+int64(pausedWindow) {
				break
			}
			if o.Call >= first.Call {
				units++
			}
		}
		most = max(most, units)
	}
	return most
}
