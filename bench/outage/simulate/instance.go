package main

const never = int64(-1 << 60)

// ledger is an instance's record of its own grants of one key.
type ledger interface {
	add(now int64)
	undo(now int64)
	used(now int64) int64
}

// counterLedger counts as the library's ledger does, with any number of sub-windows.
type counterLedger struct{ slidingCounter }

func (l *counterLedger) add(now int64)  { l.charge(now, now, 1) }
func (l *counterLedger) undo(now int64) { l.charge(now, now, -1) }

// instance is one process of the fleet, with what it knows of one key.
type instance struct {
	plan       *plan
	weight     float64
	born       int64
	own        ledger
	uncharged  map[int64]int64 // units granted without Redis, by sub-window
	everything map[int64]int64 // all units granted, by sub-window: what amnesia is healed from

	share    float64 // this instance's part of the fleet's grants
	free     float64 // the part of the limit that was free
	sharedAt int64   // as of when
	freeAt   int64

	cut         int64 // since when Redis is out of reach; never if it is not
	quota       int64 // in the outage and until it is settled
	quotaKnown  bool
	lastCut     int64
	settling    bool
	reconciled  bool
	reconnected int64
	deniedUntil int64
	nextBeat    int64
	survived    int64 // the newest heartbeat that a stale replica knows of
	chargeAt    int64
	generation  int
}

func newInstance(p *plan, weight float64, now int64) *instance {
	in := &instance{plan: p, weight: weight, born: now, cut: never, lastCut: never, sharedAt: never, deniedUntil: never,
		uncharged: map[int64]int64{}, everything: map[int64]int64{}}
	in.own = &counterLedger{slidingCounter{quota: p.quota, window: p.window, k: p.buckets, counts: map[int64]int64{}}}
	return in
}

func (in *instance) subWindow(t int64) int64 { return t / (in.plan.window / in.plan.buckets) }

func (in *instance) granted(now int64, byRedis bool) {
	in.everything[in.subWindow(now)]++
	if !byRedis {
		in.uncharged[in.subWindow(now)]++
	}
}

// fixQuota decides, at the first request of a key after the cut, which part of the
// limit is this instance's until Redis is back and settled.
func (in *instance) fixQuota(now int64) {
	if in.quotaKnown {
		return
	}
	in.quotaKnown = true
	p, n := in.plan, float64(in.plan.quota)
	at := now
	if in.cut != never {
		at = in.cut
	} else if in.lastCut != never {
		at = in.lastCut
	}
	own := float64(in.own.used(at))
	equal := n / float64(p.fleet)
	fresh := in.sharedAt >= at-min(p.freshness, p.window)
	switch {
	case p.share == "equal":
		in.quota = int64(equal)
	case p.share == "full":
		in.quota = int64(n)
	case own == 0:
		in.quota = int64(equal)
		if in.born > 0 {
			in.quota = int64(equal * p.restartPart)
		}
	case p.share == "own":
		in.quota = int64(own)
	case p.share == "additive":
		in.quota = int64(own + in.free*equal + 0.5)
	case p.share == "additive-fresh" && fresh:
		in.quota = int64(own + in.free*equal + 0.5)
	case p.share == "additive-fading":
		fade := max(0, 1-float64(at-in.sharedAt)/float64(p.window))
		in.quota = int64(own + in.free*equal*fade + 0.5)
	case p.share == "proportional" && fresh || p.share == "stale":
		in.quota = int64(max(n*in.share, 1) + 0.5)
	default:
		in.quota = int64(own)
	}
}

// debt is what a restarted instance counts as granted by the process it replaced.
func (in *instance) debt(now int64) int64 {
	if in.born == 0 || !in.plan.restartDebt {
		return 0
	}
	left := max(0, in.plan.window-(now-in.born))
	return int64(float64(in.quota) * float64(left) / float64(in.plan.window))
}

func (in *instance) fits(now int64) bool {
	in.fixQuota(now)
	used := in.own.used(now)
	if in.plan.strictLedger {
		own := in.own.(*counterLedger)
		own.strict = true
		used = own.used(now)
		own.strict = false
	}
	return used+in.debt(now) < in.quota
}

// request decides one request, and reports whether it was admitted.
func (in *instance) request(f *fleet, now int64) bool {
	p := in.plan
	if now < in.deniedUntil {
		return false
	}
	if in.cut != never {
		if p.share == "full" || in.fits(now) {
			if p.share == "full" && in.own.used(now) >= p.quota {
				return false
			}
			in.own.add(now)
			in.granted(now, false)
			return true
		}
		return false
	}
	if in.settling && p.bothMustAgree && !in.fits(now) {
		return false
	}
	f.detectByReply(in, now)
	if f.redis.free(now) < 1 {
		in.deniedUntil = now + min(1e6, f.redis.wait(now))
		in.learn(f, now)
		return false
	}
	f.redis.take(now)
	in.own.add(now)
	in.granted(now, true)
	in.learn(f, now)
	return true
}

// learn takes this instance's share from a reply.
func (in *instance) learn(f *fleet, now int64) {
	if in.settling {
		return
	}
	own, used, capacity := float64(in.own.used(now)), float64(f.redis.used(now)), float64(in.plan.quota)
	if in.plan.algorithm == "gcra" {
		capacity = float64(in.plan.burst)
	}
	free := 1 - min(1, used/capacity)
	// Used is not the units of the last window here: take the most that was seen in it.
	notSliding := in.plan.algorithm == "gcra" || in.plan.algorithm == "fixed"
	if !(notSliding && in.plan.leastFree && free > in.free && now-in.freeAt < in.plan.window) {
		in.free, in.freeAt = free, now
	}
	in.share = min(1, own/max(used, 1))
	in.sharedAt = now
}

// debtAtShare is the debt that GCRA would have from these units alone, if this
// instance's quota were its limit. The fleet's debt is at most the sum of those.
func (in *instance) debtAtShare(now int64, units map[int64]int64) int64 {
	length := in.plan.window / in.plan.buckets
	debt := 0.0
	for i := in.subWindow(now) - in.plan.buckets; i <= in.subWindow(now); i++ {
		debt += float64(units[i])
		spent := min(length, now-i*length)
		debt = max(0, debt-float64(in.quota)*float64(spent)/float64(in.plan.window))
	}
	return int64(debt + 0.5)
}
