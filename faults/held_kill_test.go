//go:build unix

package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sys/unix"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// killsVariable is the environment variable that selects the long form of these tests. Its value is the number of
// holders to kill, of which one in twenty is a process.
const killsVariable = "FAULTS_KILLS"

// kills returns how many holders a test kills: a few, or in the long form a part of all.
func kills(t *testing.T, few int, part func(all int) int) int {
	t.Helper()
	all := os.Getenv(killsVariable)
	if all == "" {
		return few
	}
	n, err := strconv.Atoi(all)
	if err != nil || n < 1 {
		t.Fatalf("%s=%q: must be a number of holders to kill", killsVariable, all)
	}
	return max(few, part(n))
}

// holderOptions returns the options of holders' limiters.
func holderOptions(prefix string) []tiered.Option {
	return []tiered.Option{
		tiered.Prefix(prefix), tiered.Deadline(100 * time.Millisecond), tiered.Logger(slog.New(slog.DiscardHandler)),
		tiered.LedgerKeys(1000), tiered.RememberDenials(100),
	}
}

// hold runs a worker that is a holder, until its standard input ends.
func hold(t task) error {
	l, err := tiered.OpenURL(t.URL, holderOptions(t.Prefix)...)
	if err != nil {
		return err
	}
	h := &holder{name: t.Name, limiter: l, keys: slotKeys}
	if h.rules, err = openHolderRules(l); err != nil {
		return err
	}
	if h.write, err = fileJournal(t.Journal); err != nil {
		return err
	}
	stop := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(stop)
	}()
	h.run(stop)
	// The network works again by now, but Redis may still count as lost for some seconds. Close would give up the
	// settlements that still wait for Redis then.
	within, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := l.ChargeRest(within); err != nil {
		return err
	}
	_ = h.close() // fails if the master that the holder knew has been killed
	return nil
}

// holders are processes that hold slots and units. Some of them are killed and replaced.
type holders struct {
	t       *testing.T
	prefix  string
	dir     string
	urls    []string // URLs of their Redis; several URLs are several ways to it
	running []*holderProcess
	started int
	ended   time.Time // when the last process ended
}

type holderProcess struct {
	*worker
	journal string
}

func startHolders(t *testing.T, count int, urls ...string) *holders {
	t.Helper()
	h := &holders{t: t, prefix: redistest.Prefix(), dir: t.TempDir(), urls: urls, running: make([]*holderProcess, count)}
	for i := range h.running {
		h.start(i)
	}
	for i := range h.running {
		h.awaitBusy(i)
	}
	return h
}

// start starts a process at a place in running.
func (h *holders) start(place int) {
	h.t.Helper()
	name := fmt.Sprint("h", h.started)
	h.started++
	journal := filepath.Join(h.dir, name)
	h.running[place] = &holderProcess{
		journal: journal,
		worker:  startWorker(h.t, task{Name: name, Journal: journal, Prefix: h.prefix, URL: h.urls[place%len(h.urls)]}),
	}
}

// awaitBusy waits until a process has written more into its journal.
func (h *holders) awaitBusy(place int) {
	h.t.Helper()
	size := func() int64 {
		info, err := os.Stat(h.running[place].journal)
		if err != nil {
			return 0
		}
		return info.Size()
	}
	before := size()
	redistest.Eventually(h.t, "a process that holds units does something", func() bool { return size() > before+5000 })
}

// kill kills a process, even a stopped one.
func (h *holders) kill(place int) {
	h.t.Helper()
	w := h.running[place]
	w.signal(h.t, unix.SIGKILL)
	_ = w.cmd.Wait() // returns an error, because the process was killed
	h.ended = time.Now()
}

// end ends all processes: it kills some, and tells the others to end.
func (h *holders) end() {
	h.t.Helper()
	for i, w := range h.running {
		if i%2 == 0 {
			h.kill(i)
			continue
		}
		if err := errors.Join(w.input.Close(), w.cmd.Wait()); err != nil {
			h.t.Errorf("a process did not end in order: %v", err)
		}
		h.ended = time.Now()
	}
}

// outcome returns the outcome of all processes that were ever started.
func (h *holders) outcome(client redis.UniversalClient) *outcome13 {
	h.t.Helper()
	o := &outcome13{t: h.t, prefix: h.prefix, client: client, ended: h.ended}
	for i := range h.started {
		o.journals = append(o.journals, readJournal(h.t, filepath.Join(h.dir, fmt.Sprint("h", i))))
	}
	return o
}

// Laws 1, 3, 12 and 13 for slots and holds: processes acquire slots and hold units while they are killed and
// stopped at random, and while the network between them and Redis fails.
func TestLaw13ProcessesAreKilledAndStopped(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	ways := []*proxies{startProxies(t, server.Addr()), startProxies(t, server.Addr())}
	var urls []string
	for _, way := range ways {
		urls = append(urls, "redis://"+way.to[server.Addr()].Listen)
	}
	h := startHolders(t, 4, urls...)

	over := make(chan struct{})
	var failing sync.WaitGroup
	faults := 0
	failing.Go(func() {
		for goesOn(over) {
			way, n := ways[rand.IntN(len(ways))], networks()[rand.IntN(len(networks()))]
			for _, f := range n.faults {
				way.begin(f)
			}
			time.Sleep(time.Duration(rand.IntN(200)) * time.Millisecond)
			way.end()
			faults++
			time.Sleep(time.Duration(rand.IntN(300)) * time.Millisecond)
		}
	})
	killed, stopped := kills(t, 16, func(all int) int { return all / 20 }), 0
	for i := range killed {
		place := rand.IntN(len(h.running))
		if i%4 == 0 {
			// Every other time, the process stands still for longer than its slots and holds last, and then goes
			// on: its first look must tell it that its slots are lost. The other times it stands still for a
			// shorter time, and is killed during or after that time.
			place = i / 4 % len(h.running)
			longer := i%8 == 0
			h.running[place].signal(t, unix.SIGSTOP)
			pause := time.Duration(rand.Int64N(int64(holderTTL)))
			if longer {
				pause = holderTTL*5/4 + pause/4
			}
			time.Sleep(pause)
			stopped++
			if longer || rand.IntN(3) > 0 {
				h.running[place].signal(t, unix.SIGCONT)
				h.awaitBusy(place)
				place = (place + 1) % len(h.running)
			}
		}
		h.kill(place)
		h.start(place)
		h.awaitBusy(place)
	}
	close(over)
	failing.Wait()
	h.awaitFull(server.Client(t))
	h.end()
	t.Logf("%d processes killed, %d stopped, the network failed %d times", killed, stopped, faults)
	h.outcome(server.Client(t)).checkSlotsAndHolds()
}

// awaitFull waits until all units of some keys have been held, as otherwise the limit has not been tested.
func (h *holders) awaitFull(client redis.UniversalClient) {
	h.t.Helper()
	rules, err := openHolderRules(newLimiter(h.t, client, h.prefix))
	if err != nil {
		h.t.Fatal(err)
	}
	full := 0
	redistest.Eventually(h.t, "all units are held, at twenty times", func() bool {
		for i := range manySlotKeys {
			if d, err := rules.slots.Peek(h.t.Context(), fmt.Sprint("k", i), 1); err == nil && d.Tier == limit.TierRedis && d.Remaining == 0 {
				full++
			}
		}
		return full >= 20
	})
}

// Law 13 holds while slots of a Cluster move to another node and back.
func TestLaw13ReshardingWhileUnitsAreHeld(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2)
	from, to := cluster.Nodes()[0], cluster.Nodes()[1]
	h := startHolders(t, 2, "redis://"+from.Addr()+"?addr="+to.Addr())
	moved := 0
	for i := range 4 {
		slots := slotsOf(t, from, h.prefix)
		cluster.MoveSlots(t, from, to, slots, func() { h.awaitBusy(0) })
		from, to, moved = to, from, moved+len(slots)
		if i == 2 {
			h.kill(0)
			h.start(0)
		}
		h.awaitBusy(0)
		h.awaitBusy(1)
	}
	h.end()
	t.Logf("slots moved %d times", moved)
	if moved < 10 {
		t.Errorf("the test shows little: slots moved %d times", moved)
	}
	h.outcome(cluster.Client(t)).checkSlotsAndHolds()
}

// Law 13 in a failover to a replica with asynchronous replication: slots that the replica has not received are
// lost, and may be acquired once more until their holders have told Redis. After that at most n are held again, and
// nothing leaks.
func TestLaw13FailoverWhileUnitsAreHeld(t *testing.T) {
	t.Parallel()
	sentinel := redistest.StartSentinel(t)
	h := startHolders(t, 2, "redis://"+sentinel.Addr()+"?master_name="+sentinel.MasterName())
	h.awaitBusy(0)
	killed := monotonic()
	sentinel.Master().Kill()
	replica := sentinel.Replica().Client(t)
	awaitPromotion(t, replica)
	// By then all holders have told Redis, and holders of too many units have released them.
	until := monotonic() + int64(holderTTL) + int64(holderSlow)
	redistest.Eventually(t, "what was lost is held by nobody any more", func() bool { return monotonic() > until })
	h.kill(0)
	h.start(0)
	h.awaitBusy(0)
	h.awaitBusy(1)
	h.end()
	o := h.outcome(replica)
	o.checkNothingLeaks()
	o.checkSlots(killed, until)
}

// outcome13 is what the holders have left behind when all have ended.
type outcome13 struct {
	t        *testing.T
	prefix   string
	client   redis.UniversalClient
	ended    time.Time // when the last holder ended
	journals []journal
}

// checkSlotsAndHolds checks everything that must hold if Redis has lost nothing. It does not call t.Helper, so that
// a failure names the line of the check.
func (o *outcome13) checkSlotsAndHolds() {
	o.checkNothingLeaks()
	o.checkSlots(0, 0)
	o.checkAccounts()
	o.checkWindows()
}

// checkNothingLeaks waits until Redis must have forgotten all holders of slots, and checks that it has.
func (o *outcome13) checkNothingLeaks() {
	o.t.Helper()
	time.Sleep(time.Until(o.ended.Add(holderTTL + time.Second)))
	for i := range manySlotKeys {
		key := fmt.Sprintf("%s:{k%d}:jobs:slots", o.prefix, i)
		if value, err := o.client.Get(context.Background(), key).Result(); err == nil || !errors.Is(err, redis.Nil) {
			o.t.Errorf("%s is still %q, %v after all who held it have ended, %v", key, value, time.Since(o.ended), err)
		}
	}
}

// checkSlots checks that never more units were held than the limit allows. Between the times from and to, in which
// Redis may have lost part of its data, up to twice as many may be held.
func (o *outcome13) checkSlots(from, to int64) {
	o.t.Helper()
	var all []belief
	for _, j := range o.journals {
		all = append(all, j.beliefs()...)
	}
	most, ever := mostHeld(all, from, to)
	if most > slotUnits || ever > 2*slotUnits {
		o.t.Errorf("%d units of %d were held at the same time, and %d in a failover", most, slotUnits, ever)
	}
	o.t.Logf("%d slots were acquired, at most %d units of %d held at the same time (%d in a failover)", len(all), most, slotUnits, ever)
	if most < slotUnits || len(all) < 50 {
		o.t.Error("the test shows little")
	}
}

// balance13 has bounds on the charges of a key.
type balance13 struct {
	rule, key   string
	least, most int64
}

// checkAccounts checks that the units each holder used are charged exactly once, also if it used more than it held.
// Units of holds that it left behind are kept or given back, as the rule says.
func (o *outcome13) checkAccounts() {
	o.t.Helper()
	accounts := make(map[[2]string]*balance13)
	settlements, unsure := 0, 0
	for _, j := range o.journals {
		all, lost := j.charges()
		if lost > 0 {
			o.t.Errorf("of %d settlements Redis did not know the hold", lost)
		}
		for _, c := range all {
			if c.rule != accountRules[0] && c.rule != accountRules[1] {
				continue
			}
			a := accounts[[2]string{c.rule, c.key}]
			if a == nil {
				a = &balance13{rule: c.rule, key: c.key}
				accounts[[2]string{c.rule, c.key}] = a
			}
			least, most := c.inTheEnd(c.rule == accountRules[1])
			a.least, a.most = a.least+least, a.most+most
			if settlements++; least < most {
				unsure++
			}
		}
	}
	rules, err := openHolderRules(newLimiter(o.t, o.client, o.prefix))
	if err != nil {
		o.t.Fatal(err)
	}
	observer := observe(o.t, o.client, o.prefix)
	for _, a := range accounts {
		rule := rules.units[0]
		if a.rule != rule.Name() {
			rule = rules.units[2]
		}
		if n := observer.charged(o.t, rule, a.key); n < a.least || n > a.most {
			o.t.Errorf("%s, key %q: %d units are charged, want %d to %d", a.rule, a.key, n, a.least, a.most)
		}
	}
	o.t.Logf("%d holds on %d keys, of which %d may have been settled or not when their process was killed", settlements, len(accounts), unsure)
	if settlements < 50 || unsure*2 > settlements { // a quarter of them on a machine with a load of 16
		o.t.Error("the test shows little")
	}
}

// checkWindows checks that the units held and used in a window never exceeded the limit.
func (o *outcome13) checkWindows() {
	o.t.Helper()
	of := make(map[[2]string][]*charge)
	for _, j := range o.journals {
		all, _ := j.charges()
		for _, c := range all {
			if c.at > 0 && (c.rule == windowRules[0] || c.rule == windowRules[1]) {
				of[[2]string{c.rule, c.key}] = append(of[[2]string{c.rule, c.key}], c)
			}
		}
	}
	fills := int64(0)
	for key, all := range of {
		most := fullest(all, key[0] == windowRules[1])
		if fills = max(fills, most); most > windowUnits {
			o.t.Errorf("%s, key %q: %d units in a window, held or used, want up to %d", key[0], key[1], most, windowUnits)
		}
	}
	o.t.Logf("at most %d units of %d in a window, held or used", fills, windowUnits)
	if fills < windowUnits/4 { // with a load of 16, half of them: many answers are lost, and their grants unknown
		o.t.Error("the test shows little")
	}
}
