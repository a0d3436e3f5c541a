package main

import (
	"fmt"

	"github.com/tierlimit/tierlimit/bench/outage/factor"
)

// heavyKeys is the number of keys that are offered more than their limit all the time, while other keys are attacked.
const heavyKeys = 10

// ledgerRoom is the ratio of attacked keys to those that the ledger has room for.
const ledgerRoom = 10

func attackDuty(s settings, d *duty) { d.LedgerKeys = max(1000, s.Keys/ledgerRoom) }

func playAttack(f *fleet) error {
	perSecond := float64(f.Quota) / f.Window.Seconds() * f.Load * heavyKeys
	tail := float64(f.Keys) / float64(len(f.instances)) / (0.8 * f.Outage.Seconds())
	orders := func(tailRate float64) step {
		return func(f *fleet) error {
			for i, in := range f.instances {
				o := order{Rate: perSecond * f.weights[i], Heavy: heavyKeys, TailRate: tailRate, Tail: f.Keys, From: i * f.Keys / len(f.instances)}
				if err := in.order(o); err != nil {
					return err
				}
			}
			return nil
		}
	}
	return inOrder(orders(0), windows(2.2), lose(dropAll), orders(tail), anOutage, orders(0), regain(healAll))(f)
}

func judgeAttack(f *fleet, calls []call) {
	window := f.Window.Microseconds()
	worst := int64(0)
	for key := range uint32(heavyKeys) {
		units, _ := factor.Most(grants(calls, ours, key), window, f.began, f.end)
		worst = max(worst, units)
	}
	f.check("worst window of a heavy key / limit", float64(worst)/float64(f.Quota), most["attack"], false)

	asked := make(map[uint32]int)
	requests, admitted := 0, 0
	for _, c := range calls {
		if c.key >= heavyKeys {
			asked[c.key]++
			requests++
			if c.allowed {
				admitted++
			}
		}
	}
	f.note("the tail: %d requests of %d keys, %.1f %% admitted; room for %d keys in each ledger",
		requests, len(asked), 100*float64(admitted)/float64(max(1, requests)), f.duty.LedgerKeys)
	grown := int64(0)
	for _, r := range f.finals {
		grown = max(grown, int64(r.HeapAfter)-int64(r.HeapBefore))
	}
	f.check(fmt.Sprintf("bytes that the heap grew by, of %d keys", f.Keys), float64(grown), heapGrowth, false)
}
