package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// debtsWindow is so long that no unit leaves it while the test inspects Redis.
const debtsWindow = 10 * time.Minute

// chargedWithin is how long charging 100,000 debts may take.
const chargedWithin = 60 * time.Second

// A key that is evicted from the ledger is not charged, and its loss keeps the fleet settling for a window. The
// ledger therefore has ample room here.
func debtsDuty(s settings, d *duty) { d.LedgerKeys, d.Window = 8*s.Debts, debtsWindow }

// playDebts has every instance ask once for each key during the outage. Then it times another
// client's commands while Redis is charged.
func playDebts(f *fleet) error {
	if err := lose(dropAll)(f); err != nil {
		return err
	}
	// Heartbeats notice the loss, since there are no requests yet.
	if err := f.eventually("all breakers open", func(w news) bool { return w.Degraded }); err != nil {
		return err
	}
	for i, in := range f.instances {
		o := order{TailRate: float64(f.Debts) / 10, Tail: f.Debts, From: i * f.Debts / len(f.instances), Once: true}
		if err := in.order(o); err != nil {
			return err
		}
	}
	if err := f.eventually("each key asked for once", func(w news) bool { return w.Idle }); err != nil {
		return err
	}
	f.up = now()
	if err := healAll(f); err != nil {
		return err
	}
	within := chargedWithin * time.Duration(f.Debts) / 100_000
	took, err := f.timeOthers(max(within, 2*time.Second))
	if err != nil {
		return err
	}
	if err := f.eventually("all is charged", isCharged); err != nil {
		return err
	}
	p99 := took[len(took)*99/100]
	f.check("p99 of other callers of Redis, ms", micro(p99)/1000, othersP99, false)
	f.note("other callers of Redis: %d commands, median %v, p99 %v, longest %v", len(took), took[len(took)/2], p99, took[len(took)-1])
	return f.reconnected()
}

func isCharged(w news) bool { return w.Charged }

// timeOthers times another client's commands while the instances charge, for at most d, and returns the times in
// ascending order.
func (f *fleet) timeOthers(d time.Duration) (took []time.Duration, err error) {
	client := f.server.Client(f.bed)
	began := time.Now()
	for until := began.Add(d); time.Now().Before(until); {
		if time.Since(began) > time.Second && f.all(isCharged) {
			f.note("all was charged after %v", time.Since(began).Round(time.Second/10))
			break
		}
		started := time.Now()
		if err := client.Set(f.ctx, "other", "x", time.Minute).Err(); err != nil {
			return nil, err
		}
		took = append(took, time.Since(started))
		if err := f.wait(2 * time.Millisecond); err != nil {
			return nil, err
		}
	}
	slices.Sort(took)
	return took, nil
}

// judgeDebts compares the units that Redis counts for each key with the units that the instances admitted.
func judgeDebts(f *fleet, calls []call) {
	admitted := make([]int64, f.Debts)
	for _, c := range calls {
		if c.allowed {
			admitted[c.key]++
		}
	}
	held, err := f.held()
	if err != nil {
		f.note("what Redis holds could not be read: %v", err)
	}
	twice, units, charged := 0, int64(0), int64(0)
	for key, n := range admitted {
		units += n
		charged += min(n, held[key])
		if held[key] > n {
			twice++
		}
	}
	f.check("keys charged more than was admitted", float64(twice), chargedTwice, false)
	f.check("units charged / units admitted", float64(charged)/float64(max(1, units)), chargedPart, true)
	f.note("%d units admitted of %d keys", units, f.Debts)
}

// held returns how many units of each key Redis counts.
func (f *fleet) held() (units []int64, err error) {
	units = make([]int64, f.Debts)
	l, err := tiered.Open(&redis.UniversalOptions{Addrs: []string{f.server.Addr()}}, tiered.Deadline(5*time.Second))
	if err != nil {
		return units, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	r, err := l.Rule("rule0", limit.Per(f.Quota, debtsWindow))
	if err != nil {
		return units, err
	}
	var wg sync.WaitGroup
	var mu sync.Mutex // guards err
	const readers = 64
	for reader := range readers {
		wg.Go(func() {
			for key := reader; key < f.Debts; key += readers {
				d, failed := r.Peek(context.Background(), fmt.Sprint("key", key), 1)
				units[key] = f.Quota - d.Remaining
				if failed != nil || d.Tier != limit.TierRedis {
					mu.Lock()
					err = fmt.Errorf("key %d: %v by %v", key, failed, d.Tier)
					mu.Unlock()
					return
				}
			}
		})
	}
	wg.Wait()
	return units, err
}
