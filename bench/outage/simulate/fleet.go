package main

import (
	"math"
	"math/rand/v2"

	"github.com/tierlimit/tierlimit/bench/outage/factor"
)

// plan is one simulated history.
type plan struct {
	algorithm     string
	quota, window int64 // window in µs
	burst         int64 // GCRA
	weights       []float64
	load          float64 // offered, in limits
	outageLoad    float64 // offered from the cut on, if not 0
	fleet         int

	length, down, up int64 // µs
	cutOff           int   // how many instances are cut off, the first ones; 0: all
	empty            bool  // Redis comes back with an empty memory

	share         string // additive, proportional (the design), own, equal, full, stale, additive-...
	leastFree     bool   // in GCRA and fixed windows, the least that was free in the last window
	freshness     int64  // how old a share may be at the cut, µs
	strictLedger  bool   // counts the oldest sub-window whole
	buckets       int64  // sub-windows of the ledger
	charge        string // how local grants are charged: "", now, end, middle, spread, start, debt
	chargeTakes   int64  // µs after reconnection, per instance
	chargeUneven  bool   // up to that
	bothMustAgree bool
	settle        string // until all have "reconciled", for a "window", or "alone"

	restartEvery int64 // in the outage, one instance each
	restartDebt  bool
	restartPart  float64
	reversed     bool // lightest first

	grow     int64     // instance i begins at i*grow
	growStop bool      // and ends when the next begins
	moved    []float64 // weights from the cut on

	flushAt int64  // memory lost while Redis runs
	lost    int64  // only the writes of so long before, as a failover to a replica does
	heal    string // "", beat, reply, both; of lost writes: raise, since
	beat    int64
}

type fleet struct {
	plan       *plan
	redis      state
	random     *rand.Rand
	instances  []*instance
	grants     []factor.Grant
	generation int
	settledAt  int64
	quotas     int64 // sum at the end of the outage
}

func (p *plan) newState() state {
	switch p.algorithm {
	case "strict":
		return &slidingCounter{quota: p.quota, window: p.window, k: 16, strict: true, counts: map[int64]int64{}}
	case "estimate":
		return &slidingCounter{quota: p.quota, window: p.window, k: 16, counts: map[int64]int64{}}
	case "gcra":
		return &gcra{quota: p.quota, window: p.window, burst: p.burst}
	case "fixed":
		return &fixedWindow{quota: p.quota, window: p.window, index: -1}
	}
	return &slidingLog{quota: p.quota, window: p.window}
}

// run is one history with random arrivals.
func (p *plan) run(seed uint64) *fleet {
	f := &fleet{plan: p, redis: p.newState(), random: rand.New(rand.NewPCG(seed, 5)), settledAt: never}
	for _, w := range p.weights {
		in := newInstance(p, w, 0)
		in.nextBeat = f.random.Int64N(p.beat)
		in.reconciled = true
		f.instances = append(f.instances, in)
	}
	perUnit := float64(p.window) / float64(p.quota)
	cut, flushed := false, false
	restarts := 0
	for now := int64(0); ; {
		load, weights := p.load, p.weights
		if cut && p.outageLoad > 0 {
			load = p.outageLoad
		}
		if cut && p.moved != nil {
			weights = p.moved
		}
		now += int64(f.random.ExpFloat64()*perUnit/load) + 1
		if now >= p.length {
			break
		}
		if !cut && p.up > p.down && now >= p.down {
			cut = true
			for i, in := range f.instances {
				if p.cutOff == 0 || i < p.cutOff {
					in.cut = p.down
					in.quotaKnown = false
					// The next probe that finds Redis back.
					in.reconnected = p.up + f.random.Int64N(275_000)
				}
			}
		}
		if cut && p.empty && !flushed && now >= p.up {
			flushed = true
			f.generation++
			f.redis.clear()
		}
		if p.flushAt > 0 && !flushed && now >= p.flushAt {
			flushed = true
			f.generation++
			if p.lost > 0 {
				f.redis.(*slidingLog).forget(p.flushAt - p.lost)
			} else {
				f.redis.clear()
			}
		}
		for cut && p.restartEvery > 0 && restarts < len(f.instances) && now >= p.down+int64(restarts+1)*p.restartEvery {
			i := restarts
			if p.reversed {
				i = len(f.instances) - 1 - restarts
			}
			old := f.instances[i]
			fresh := newInstance(p, old.weight, now)
			fresh.cut, fresh.reconnected, fresh.reconciled = now, old.reconnected, true
			f.instances[i] = fresh
			restarts++
		}
		if cut && f.quotas == 0 && now >= p.up-second/10 {
			for _, in := range f.instances {
				if in.cut != never {
					in.fixQuota(now)
					f.quotas += in.quota
				}
			}
		}
		for _, in := range f.instances {
			f.keep(in, now)
		}
		i := f.pick(weights, now)
		if f.instances[i].request(f, now) {
			f.grants = append(f.grants, factor.Grant{At: now, Units: 1})
		}
	}
	return f
}

func (f *fleet) pick(weights []float64, now int64) int {
	if f.plan.grow > 0 && !(f.plan.moved != nil && now >= f.plan.down) {
		active := min(int64(len(weights)), now/f.plan.grow+1)
		if f.plan.growStop {
			return int(active - 1)
		}
		return f.random.IntN(int(active))
	}
	x := f.random.Float64()
	for i, w := range weights {
		if x -= w; x < 0 {
			return i
		}
	}
	return len(weights) - 1
}

// keep is what an instance does in the background.
func (f *fleet) keep(in *instance, now int64) {
	p := f.plan
	if in.cut != never && now >= in.reconnected {
		in.lastCut, in.cut = in.cut, never
		in.settling, in.reconciled = true, false
		in.chargeAt = in.reconnected + p.chargeTakes
		if p.chargeUneven {
			in.chargeAt = in.reconnected + f.random.Int64N(p.chargeTakes)
		}
	}
	if in.cut == never && in.settling && !in.reconciled && now >= in.chargeAt {
		if in.generation != f.generation {
			f.heal(in, now)
		} else {
			f.charge(in, now, in.uncharged)
		}
		in.uncharged = map[int64]int64{}
		in.reconciled = true
	}
	if now >= in.nextBeat {
		in.nextBeat = now + p.beat
		if now < p.flushAt-p.lost {
			in.survived = now
		}
		if in.cut == never {
			f.beat(in, now)
		}
	}
}

func (f *fleet) beat(in *instance, now int64) {
	p := f.plan
	if in.generation != f.generation && p.heal != "" && p.heal != "reply" {
		f.heal(in, now)
	}
	if !in.settling || !in.reconciled {
		return
	}
	done := true
	switch p.settle {
	case "reconciled":
		for _, other := range f.instances {
			done = done && other.cut == never && other.reconciled
		}
	case "window":
		done = now >= in.reconnected+p.window
	}
	if done {
		in.settling, in.quotaKnown, in.lastCut = false, false, never
		f.settledAt = max(f.settledAt, now)
	}
}

// detectByReply heals when a reply's count is below what this instance alone has
// granted for sure.
func (f *fleet) detectByReply(in *instance, now int64) {
	p := f.plan
	if p.heal != "reply" && p.heal != "both" || in.generation == f.generation {
		return
	}
	sure := int64(0)
	for i, n := range in.everything {
		if i > in.subWindow(now)-p.buckets {
			sure += n
		}
	}
	if f.redis.used(now) < sure {
		f.heal(in, now)
	}
}

// heal charges once more what this instance granted and Redis has forgotten.
func (f *fleet) heal(in *instance, now int64) {
	in.generation = f.generation
	lost := map[int64]int64{}
	own := int64(0)
	for i, n := range in.everything {
		// Of lost writes, those since the last heartbeat that Redis still knows.
		if p := in.plan; p.heal != "since" || i >= in.subWindow(in.survived) {
			lost[i] = n
		}
		if i > in.subWindow(now)-in.plan.buckets {
			own += n
		}
	}
	if in.plan.heal == "raise" {
		// Up to own, at the newest sub-window.
		lost = map[int64]int64{in.subWindow(now): max(0, own-f.redis.used(now))}
	}
	f.charge(in, now, lost)
	in.uncharged = map[int64]int64{} // was part of it
}

// charge puts local grants into Redis, with their age.
func (f *fleet) charge(in *instance, now int64, units map[int64]int64) {
	p := f.plan
	length := p.window / p.buckets
	if p.algorithm == "gcra" && p.charge == "debt" {
		f.redis.charge(now, now, in.debtAtShare(now, units))
		return
	}
	first, last := int64(math.MaxInt64), int64(0)
	for i := range units {
		first, last = min(first, i), max(last, i)
	}
	for i := max(first, now/length-p.buckets); i <= last; i++ {
		n := units[i]
		start, end := i*length, min((i+1)*length-1, now)
		for u := range n {
			stamp := end
			switch p.charge {
			case "":
				continue
			case "now":
				stamp = now
			case "middle":
				stamp = (start + end) / 2
			case "start":
				stamp = start
			case "spread":
				stamp = start + (end-start)*(2*u+1)/(2*n)
			}
			if p.algorithm != "log" || stamp > now-p.window {
				f.redis.charge(now, stamp, 1)
			}
		}
	}
}
