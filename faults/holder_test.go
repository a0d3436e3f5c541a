//go:build unix

package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

const (
	holderTTL  = time.Second // TTL of slots, and life of holds
	holderSlow = 2 * holderTTL
	// slotUnits is the number of units of a key that may be held at the same time.
	slotUnits = 5
	// slotKeys is the number of keys whose slots a few processes share. manySlotKeys is the number for many
	// limiters that end one after another.
	slotKeys, manySlotKeys = 3, 30
	// windowUnits is the number of units that may be held or used in each window of the window rules.
	windowUnits, windowKeys = 60, 2
	window                  = time.Second
	// accountUnits is more than a holder uses. For keys of the account rules, the sum is checked.
	accountUnits = 1_000_000
	// spenders and acquirers are the numbers of a holder's goroutines.
	spenders, acquirers = 3, 4
)

// holderRules are the rules that holders share. None of them grants anything without Redis.
type holderRules struct {
	slots *tiered.Rule
	units []*tiered.Rule // account, window, account, window; spenders have account keys of their own
}

// These are names of rules. The first rule of each pair keeps units that nobody settles, the second gives them
// back.
var (
	accountRules = []string{"account-kept", "account-given-back"}
	windowRules  = []string{"window-kept", "window-given-back"}
)

func openHolderRules(l *tiered.Limiter) (r holderRules, err error) {
	r.slots, err = l.Rule("jobs", limit.Concurrent(slotUnits), tiered.SlotTTL(holderTTL), tiered.OnOutage(tiered.Deny))
	if err != nil {
		return r, err
	}
	for i, what := range []tiered.UnsettledPolicy{tiered.Keep, tiered.GiveBack} {
		account, err := l.Rule(accountRules[i], limit.PerDay(accountUnits),
			tiered.Use(limit.SlidingCounter(limit.DefaultBuckets, limit.Strict)), tiered.Unsettled(what), tiered.OnOutage(tiered.Deny))
		if err != nil {
			return r, err
		}
		shared, err := l.Rule(windowRules[i], limit.Per(windowUnits, window),
			tiered.Use(limit.SlidingLog()), tiered.Unsettled(what), tiered.OnOutage(tiered.Deny))
		if err != nil {
			return r, err
		}
		r.units = append(r.units, account, shared)
	}
	return r, nil
}

// holder is a process, or a limiter that stands for one. It acquires slots, holds units, and writes a journal of
// its actions. It may end at any moment.
type holder struct {
	name    string // unique
	limiter *tiered.Limiter
	rules   holderRules
	keys    int // number of keys with slots
	// write keeps an event. Once the holder is dead, it keeps nothing and returns false.
	write func(event) (alive bool)
	last  atomic.Int64 // last ID of a slot or hold
}

// run runs until stop is closed or the holder is dead.
func (h *holder) run(stop <-chan struct{}) {
	var working sync.WaitGroup
	for i := range acquirers {
		working.Go(func() { h.acquire(rand.New(rand.NewPCG(rand.Uint64(), uint64(i))), stop) })
	}
	for i := range spenders {
		working.Go(func() { h.spend(rand.New(rand.NewPCG(rand.Uint64(), uint64(i))), fmt.Sprint(h.name, "-", i), stop) })
	}
	done := make(chan struct{})
	go func() {
		working.Wait()
		close(done)
	}()
	for {
		select {
		case <-done:
			return
		case <-time.After(2 * time.Millisecond):
			h.takeStock()
		}
	}
}

// close ends the holder in an orderly way, after run.
func (h *holder) close() error {
	err := h.limiter.Close()
	h.takeStock()
	return err
}

// takeStock writes down that all settlements so far have been made, if they have.
func (h *holder) takeStock() {
	at := monotonic()
	if s := h.limiter.Stats(); s.Holds.Unsettled == 0 {
		h.write(event{What: settledAll, At: at, Redis: time.Now().UnixMicro(), Units: s.Holds.Lost})
	}
}

func goesOn(stop <-chan struct{}) bool {
	select {
	case <-stop:
		return false
	default:
		return true
	}
}

// acquire acquires slots, acts on them for as long as they are held, and releases them.
func (h *holder) acquire(random *rand.Rand, stop <-chan struct{}) {
	for goesOn(stop) {
		units := 1 + random.Int64N(2)
		slots, keys := h.acquireSome(random, units)
		if slots == nil {
			time.Sleep(time.Duration(random.IntN(10)) * time.Millisecond)
			continue
		}
		first := h.last.Add(int64(len(slots))) - int64(len(slots))
		lasts := time.Duration(random.Int64N(int64(10 * time.Millisecond)))
		if random.IntN(20) == 0 { // long enough for several renewals
			lasts = time.Duration(random.Int64N(int64(holderSlow)))
		}
		// The last look is directly before the slots are released: until then the holder believes that it holds
		// them.
		for until := monotonic() + int64(lasts); ; {
			now, held := monotonic(), false
			for i, slot := range slots {
				// A holder that finds the slot held may have acted on it just before.
				if slot.Held() {
					held = true
					if !h.write(event{What: acted, ID: first + int64(i), Key: keys[i], Units: units, At: now}) {
						return
					}
				}
			}
			if !held || now >= until {
				break
			}
			time.Sleep(min(time.Duration(random.Int64N(int64(10*time.Millisecond))), time.Duration(until-now)))
		}
		for _, slot := range slots {
			slot.Release()
		}
	}
}

// acquireSome acquires a slot of one key, or one slot of each of two keys together.
func (h *holder) acquireSome(random *rand.Rand, units int64) (slots []*tiered.Slot, keys []string) {
	key := random.IntN(h.keys)
	keys = []string{fmt.Sprint("k", key), fmt.Sprint("k", (key+1)%h.keys)}
	if random.IntN(8) > 0 {
		slot, _, err := h.rules.slots.Acquire(context.Background(), keys[0], units)
		if slot == nil || err != nil {
			return nil, nil
		}
		return []*tiered.Slot{slot}, keys
	}
	grants, _, err := h.limiter.TakeAll(context.Background(),
		tiered.Request{Rule: h.rules.slots, Key: keys[0], Cost: units}, tiered.Request{Rule: h.rules.slots, Key: keys[1], Cost: units})
	if err != nil || grants == nil {
		return nil, nil
	}
	return []*tiered.Slot{grants[0].Slot, grants[1].Slot}, keys
}

// cost is the estimate of a hold and the units that are used in the end.
type cost struct {
	id             int64
	rule           *tiered.Rule
	key            string
	estimate, used int64
}

// spend holds units and settles them. For a day's units, it has a key of its own, and may use more or less than the
// estimate. For a window's units, whose keys are shared, it never uses more.
func (h *holder) spend(random *rand.Rand, own string, stop <-chan struct{}) {
	for goesOn(stop) && h.spendOnce(random, own) {
	}
}

func (h *holder) spendOnce(random *rand.Rand, own string) (goesOn bool) {
	which := random.IntN(len(h.rules.units))
	costs := []*cost{h.newCost(random, which, own)}
	if random.IntN(8) == 0 { // a day's and a window's units together
		costs = append(costs, h.newCost(random, which^1, own))
	}
	for _, c := range costs {
		if !h.write(event{What: asked, ID: c.id, Rule: c.rule.Name(), Key: c.key, Units: c.estimate}) {
			return false
		}
	}
	holds, decisions, err := h.hold(costs)
	if err != nil {
		return false // the limiter is closed
	}
	if holds == nil {
		for _, c := range costs {
			if !h.write(event{What: refused, ID: c.id, At: monotonic()}) {
				return false
			}
		}
		time.Sleep(time.Duration(random.IntN(10)) * time.Millisecond)
		return true
	}
	for i, c := range costs {
		if !h.write(event{What: held, ID: c.id, Redis: decisions[i].ChargedAt}) {
			return false
		}
	}
	time.Sleep(time.Duration(random.Int64N(int64(10 * time.Millisecond))))
	if random.IntN(20) == 0 {
		if random.IntN(2) == 0 {
			_ = holds[0].Extend(context.Background(), holderTTL) // may find that the units have been given back
		}
		time.Sleep(time.Duration(random.Int64N(int64(holderSlow))))
	}
	for i, c := range costs {
		if !h.write(event{What: settling, ID: c.id, Units: c.used, Redis: time.Now().UnixMicro()}) {
			return false
		}
		if c.used == 0 {
			err = holds[i].Cancel(context.Background())
		} else {
			err = holds[i].Settle(context.Background(), c.used)
		}
		if err != nil || !h.write(event{What: settled, ID: c.id, At: monotonic()}) {
			return false
		}
	}
	return true
}

func (h *holder) newCost(random *rand.Rand, which int, own string) *cost {
	c := &cost{id: h.last.Add(1), rule: h.rules.units[which], key: own, estimate: 1 + random.Int64N(10)}
	c.used = random.Int64N(2 * c.estimate)
	if which%2 == 1 {
		c.key, c.used = fmt.Sprint("w", random.IntN(windowKeys)), random.Int64N(c.estimate+1)
	}
	return c
}

func (h *holder) hold(costs []*cost) ([]*tiered.Hold, []limit.Decision, error) {
	if c := costs[0]; len(costs) == 1 {
		hold, d, err := c.rule.Hold(context.Background(), c.key, c.estimate, holderTTL)
		if hold == nil {
			return nil, nil, err
		}
		return []*tiered.Hold{hold}, []limit.Decision{d}, nil
	}
	var requests []tiered.Request
	for _, c := range costs {
		requests = append(requests, tiered.Request{Rule: c.rule, Key: c.key, Cost: c.estimate})
	}
	return h.limiter.HoldAll(context.Background(), holderTTL, requests...)
}
