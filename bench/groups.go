package main

import (
	"fmt"
	"time"

	"github.com/tierlimit/tierlimit/limit"
)

// group is a set of contenders that are compared on the same workload.
type group struct {
	name     string // of the workload
	title    string
	workload func() workload
	// reference is the name of the contender by which all others are divided.
	reference  string
	contenders []contender
	sizes      []size // nil: as the settings say
	// share is how long a measurement takes, relative to the usual time.
	share float64
	// prefill means that each key is used once before.
	prefill bool
	// useUp means that each key is used up before. Each measurement has a warm-up of its own length, in which
	// processes can learn denials.
	useUp bool
	// finer means that one caller is measured in three times as many rounds of a third of the length. A single caller
	// and the server sleep in turns, and how fast they wake up changes from second to second.
	finer bool
	// offered is a fixed rate of calls, as a part of what redis_rate decides in the workload fleet-uniform at that
	// size. 0: callers wait for their answers.
	offered  float64
	primed   bool // see drivePrimed
	overload *overloading
	drive    driver // nil: see drive
	busy     int    // processes that Redis shares its CPU with, see startBusy
	far      bool   // clients and Redis are a network apart, see behindNetwork
	inTurn   bool   // see measureInTurn
	masters  int    // of a Cluster, see startCluster; 0: the run's own server
}

// warmUp returns how long a subject runs before it is measured for span. This is long enough for the pool to fill
// with connections.
func (g *group) warmUp(span time.Duration) time.Duration {
	if g.useUp {
		return span
	}
	return max(span/5, 20*time.Millisecond)
}

// takes returns about how long a measurement of span takes, with its warm-up and preparation.
func (g *group) takes(span time.Duration) time.Duration {
	takes := g.warmUp(span) + span + 30*time.Millisecond
	if g.primed {
		takes += (span/primedStretch + 1) * primingTakes
	}
	if g.overload != nil {
		takes += 2 * span
	}
	if mostProcesses([]group{*g}) > 0 {
		takes += toldBefore + 500*time.Millisecond
	}
	return takes
}

const (
	nameGCRA      = "tierlimit, GCRA"
	nameLog       = "tierlimit, sliding log"
	nameCounter1  = "tierlimit, counter k=1"
	nameCounter16 = "tierlimit, counter k=16"
	nameDenial    = "tierlimit, remembered denial"
	nameLease     = "tierlimit, lease"
	nameOutage    = "tierlimit, Redis lost"

	nameTags         = "tierlimit, GCRA, 48 hash tags"
	nameRedisRate    = "redis_rate"
	nameAutoPipeline = "redis_rate, AutoPipeline"
	nameRueidis      = "rueidislimiter"
	nameUlule        = "ulule/limiter"
	nameThrottled    = "throttled"
	nameGoZero       = "go-zero PeriodLimit"
	nameGoLimiter    = "sethvargo/go-limiter"

	namePlainGCRA = "floor: EVALSHA of plain GCRA"
	nameReturn    = `floor: EVALSHA "return 1"`
	nameRistretto = "floor: ristretto Get + time.Now"
	nameXTimeRate = "floor: x/time/rate, one process"
	nameFour      = "tierlimit, GCRA, four instances"
	nameAtMost    = "floor: 512 calls at a time, others return"
	nameGathering = "floor: callers wait and are let go"
	nameBatches   = "floor: group commit of plain GCRA"
)

// groups returns all groups to measure, with keys that only this run uses.
func groups(s settings, run string) []group {
	var (
		gcra = contender{nameGCRA, ours, openGCRA}
		log  = contender{nameLog, ours, openLog}

		peers = []contender{
			{nameRedisRate, peer, openRedisRate},
			{nameAutoPipeline, peer, openAutoPipeline},
			{nameRueidis, peer, openRueidis},
			{nameUlule, peer, openUlule},
			{nameThrottled, peer, openThrottled},
			{nameGoZero, peer, openGoZero},
			{nameGoLimiter, peer, openGoLimiter},
		}
		floors = []contender{
			{namePlainGCRA, floor, openPlainGCRA},
			{nameReturn, floor, openReturn},
			{fmt.Sprintf("floor: %d EVALSHA per pipeline", pipelined), floor, openPipeline},
			{"floor: INCR", floor, openIncr},
			{nameXTimeRate, floor, openAllowedInProcess},
		}
		ristretto = contender{nameRistretto, floor, openRistretto}
		xtime     = contender{nameXTimeRate, floor, openDeniedInProcess}
		gathering = contender{nameGathering, floor, openGathering}
	)
	all := join([]contender{gcra, log}, peers, floors)
	keys, many := thousands(float64(s.Keys)), 10*s.Keys
	groups := []group{
		{name: "hot", title: "One hot key, always allowed",
			workload: func() workload { return hotKey(run) }, reference: nameRedisRate, contenders: join(all, []contender{gathering}), share: 1, finer: true},
		{name: "alone", title: "One hot key, always allowed, one caller who asks each in turn",
			workload: func() workload { return hotKey(run + ":alone") }, reference: namePlainGCRA,
			contenders: []contender{gcra, log, peers[0], {namePlainGCRA, floor, openPlainGCRA}, {nameReturn, floor, openReturn}},
			sizes:      inThisProcess(1), share: 1, finer: true, inTurn: true},
		{name: "uniform", title: keys + " keys, uniform, always allowed",
			workload: func() workload { return manyKeys(run, s.Keys) }, reference: nameRedisRate,
			contenders: join(all, []contender{{nameBatches, floor, openPlainBatches(2)}}), share: 1, finer: true, prefill: true},
		{name: "zipf", title: keys + " keys, zipf(1.1), 100 a minute each, most denied",
			workload: func() workload { return mostlyDenied(run, s.Keys) }, reference: nameRedisRate,
			contenders: join([]contender{gcra, log}, peers), share: 1, useUp: true},
		{name: "denied", title: "One key, always denied, in process",
			workload: func() workload { return hotDenied(run) }, reference: nameRistretto,
			contenders: []contender{{nameDenial, ours, openDenial}, ristretto, xtime, {"floor: atomic add", floor, openAtomic}}, share: 0.4},
		{name: "denied-many", title: thousands(float64(many)) + " keys, zipf(1.1), always denied, in process",
			workload: func() workload { return manyDenied(run, many) }, reference: nameRistretto,
			contenders: []contender{{nameDenial, ours, openDenial}, ristretto, xtime}, share: 0.4, primed: true},
		{name: "lease", title: "One hot key, allowed from leases of at most 10 % of the limit",
			workload: func() workload { return hotLeased(run) }, reference: nameRistretto,
			contenders: []contender{{nameLease, ours, openLease}, ristretto}, share: 0.4},
		{name: "outage", title: "One hot key, allowed while Redis is lost, in process",
			workload: func() workload { return inOutage(run) }, reference: nameRistretto,
			contenders: []contender{{nameOutage, ours, openOutage}, ristretto}, share: 0.4},
	}
	groups = append(groups, group{name: farGroup, title: fmt.Sprintf("%s keys, uniform; a network that takes %d ms each way, calls come at random, so many under way", keys, farAway),
		workload: func() workload { return manyKeys(run+":far", s.Keys) }, reference: nameRedisRate,
		contenders: []contender{{nameGCRA, ours, openDefault(limit.GCRA())}, {nameLog, ours, openDefault(limit.SlidingLog())}, peers[0], peers[2], peers[3],
			{namePlainGCRA, floor, openPlainGCRA}},
		sizes: inThisProcess(1, 4), share: 1, drive: driveRandomly, far: true})
	groups = append(groups, join(togetherGroups(s, run), holdGroups(run), slotGroups(run), fleetGroups(s, run, peers), overloadGroups(s, run, peers), loadGroups(s, run))...)
	var kept []group
	for _, g := range groups {
		if g.sizes == nil {
			g.sizes = inThisProcess(s.Callers...)
		}
		g.contenders = s.onlyContenders(g.name, g.sizes, g.contenders)
		if g.contenders != nil {
			kept = append(kept, g)
		}
	}
	return kept
}

// inMemory returns the contenders whose keys' size in Redis is measured, see usedUp.
func inMemory(s settings) []contender {
	peers := []contender{
		{nameGCRA, ours, openGCRA},
		{nameCounter1, ours, openCounter(1)},
		{nameCounter16, ours, openCounter(16)},
		{nameLog, ours, openLog},
		{nameRedisRate, peer, openRedisRate},
		{nameRueidis, peer, openRueidis},
		{nameUlule, peer, openUlule},
		{nameThrottled, peer, openThrottled},
		{nameGoZero, peer, openGoZero},
		{nameGoLimiter, peer, openGoLimiter},
	}
	return s.onlyContenders("memory", inThisProcess(1), peers)
}

func join[T any](lists ...[]T) (all []T) {
	for _, list := range lists {
		all = append(all, list...)
	}
	return all
}
