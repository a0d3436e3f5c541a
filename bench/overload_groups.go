package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tierlimit/tierlimit/limit"
)

// overloading says how a group offers more calls than Redis can decide.
type overloading struct {
	times float64 // offered calls by what Redis decides while callers wait, see measureOverload
	// Other clients keep Redis busy, each for the time keep at once. It is longer for a larger ratio, so that one process
	// can offer that many calls.
	keep time.Duration
	// shared means that Redis and the callers share the processors, and that the other clients keep one busy, too.
	// Otherwise Redis needs a processor for a small part of its time only, as if it had a machine of its own.
	shared bool
}

// The names of groups, and of those that are measured only if -only is given.
const (
	overloadGroup  = "overload"
	overloadTen    = loadPrefix + "overload"
	overloadShared = loadPrefix + "overload-shared"
)

func overloadGroups(s settings, run string, peers []contender) []group {
	keys := thousands(float64(s.Keys))
	gcra := contender{nameGCRA, ours, openDefault(limit.GCRA())}
	four := contender{nameFour, ours, openSeveral(4, openDefault(limit.GCRA()))}
	atMost := contender{nameAtMost, floor, openAtMost(512, openDefault(limit.GCRA()))}
	groupOf := func(name, title string, o overloading, contenders ...contender) group {
		return group{name: name, title: fmt.Sprintf("%s keys, uniform; offered %v times what %s can decide, deadline %v", keys, o.times, title, deadline),
			workload: func() workload { return manyKeys(run+":"+name, s.Keys) }, contenders: contenders,
			sizes: inThisProcess(512), share: 1, overload: &o}
	}
	const busy = "a busy Redis"
	groups := []group{groupOf(overloadGroup, busy, overloading{times: 2, keep: time.Millisecond}, gcra, four, peers[0], peers[1], atMost)}
	if s.Only == "" {
		return groups
	}
	return append(groups,
		groupOf(overloadTen, busy, overloading{times: 10, keep: 3 * time.Millisecond}, gcra, four, atMost),
		groupOf(overloadShared, "a Redis that shares the processors", overloading{times: 2, keep: time.Millisecond, shared: true}, gcra, four, atMost))
}

// openSeveral opens a limiter several times, as the instances of a fleet do. Callers are spread over them.
func openSeveral(instances int, open opener) opener {
	return func(ctx context.Context, e environment, w *workload) (*subject, error) {
		var all []*subject
		fleet := &subject{perCall: 1, timeEvery: 1}
		for range instances {
			s, err := open(ctx, e, w)
			if err != nil {
				return nil, errors.Join(err, closeAll(all))
			}
			all = append(all, s)
			fleet.decides = append(fleet.decides, s.decides...)
		}
		fleet.close = func() error { return closeAll(all) }
		fleet.opened = func() (sum int) {
			for _, s := range all {
				sum += s.timesOpened()
			}
			return sum
		}
		return fleet, nil
	}
}

func closeAll(subjects []*subject) (err error) {
	for _, s := range subjects {
		err = errors.Join(err, s.close())
	}
	return err
}

// openAtMost wraps a limiter that gets only as many calls at a time as callers that wait for their answers would
// make. All other calls return at once. No limiter can do less for a call that it cannot decide.
func openAtMost(calls int, open opener) opener {
	return func(ctx context.Context, e environment, w *workload) (*subject, error) {
		s, err := open(ctx, e, w)
		if err != nil {
			return nil, err
		}
		inner := s.decides[0]
		var inFlight atomic.Int64
		s.decides[0] = func(ctx context.Context, key string) (outcome, error) {
			defer inFlight.Add(-1)
			if inFlight.Add(1) > int64(calls) {
				return degraded, nil
			}
			return inner(ctx, key)
		}
		return s, nil
	}
}
