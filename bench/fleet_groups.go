package main

import (
	"regexp"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

const (
	fleetUniform = "fleet-uniform"
	fleetHot     = "fleet-hot"
	fleetHalf    = "fleet-half"
	fleetOpen    = "fleet-open"
	fleetCluster = "fleet-cluster"
	fleetSlots   = "fleet-slots"
)

var (
	defaultFleet = []size{{4, 1}, {4, 4}, {4, 16}, {16, 1}, {16, 4}, {16, 16}, {32, 1}, {32, 4}, {32, 16}}
	anything     = regexp.MustCompile("")
)

// capacityPart is the offered load of fleetOpen: this part of what redis_rate decides when callers wait for their
// answers.
const capacityPart = 1. / 3

const (
	clusterMasters = 3
	hashTags       = 48 // 16 for each master
)

// fleetGroups returns the groups that are measured from many processes.
func fleetGroups(s settings, run string, peers []contender) []group {
	contenders := join(
		[]contender{{nameGCRA, ours, openDefault(limit.GCRA())}, {nameLog, ours, openDefault(limit.SlidingLog())}},
		[]contender{peers[0], peers[2], peers[3], peers[4]},
		[]contender{{namePlainGCRA, floor, openPlainGCRA}, {nameReturn, floor, openReturn}})
	keys := thousands(float64(s.Keys))
	return []group{
		{name: fleetUniform, title: keys + " keys, uniform, always allowed, many processes",
			workload: func() workload { return manyKeys(run+":fleet", s.Keys) }, reference: nameRedisRate,
			contenders: join(contenders, []contender{{nameBatches, floor, openPlainBatches(1)}}), sizes: s.Fleet, share: 1, prefill: true},
		{name: fleetOpen, title: keys + " keys, uniform, many processes; calls come at a third of what redis_rate decides",
			workload: func() workload { return manyKeys(run+":open", s.Keys) }, reference: nameRedisRate,
			contenders: contenders, sizes: s.Fleet, share: 1, prefill: true, offered: capacityPart},
		{name: fleetHot, title: "One hot key, always allowed, many processes",
			workload: func() workload { return hotKey(run + ":fleet") }, reference: nameRedisRate,
			contenders: contenders, sizes: s.Fleet, share: 1},
		{name: fleetHalf, title: "1,000 keys, uniform, 200 per 10 s each, many processes",
			workload: func() workload { return halfDenied(run + ":fleet") }, reference: nameRedisRate,
			contenders: contenders[:len(contenders)-2], sizes: s.Fleet, share: 1},
		{name: fleetCluster, title: keys + " keys, uniform, always allowed, many processes, a Cluster of three masters",
			workload: func() workload { return manyKeys(run+":cluster", s.Keys) }, reference: nameRedisRate,
			contenders: []contender{{nameGCRA, ours, openDefault(limit.GCRA())}, {nameTags, ours, openDefault(limit.GCRA(), tiered.HashTags(hashTags))},
				{nameLog, ours, openDefault(limit.SlidingLog())}, peers[0], {nameRueidis, peer, openRueidis}},
			sizes: s.Fleet, share: 1, prefill: true, masters: clusterMasters},
		{name: fleetSlots, title: "Acquire + Release on one hot key, always free, many processes",
			workload: func() workload { return hotKey(run + ":fleetslots") }, reference: nameSemaphore,
			contenders: slotContenders, sizes: s.Fleet, share: 1},
	}
}

// mostProcesses returns the number of processes in the largest fleet, or 0 if there is none.
func mostProcesses(groups []group) (most int) {
	for _, g := range groups {
		for _, z := range g.sizes {
			most = max(most, z.processes)
		}
	}
	return most
}
