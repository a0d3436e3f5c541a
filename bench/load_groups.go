package main

import (
	"fmt"
	"math"
	"strings"

	"github.com/tierlimit/tierlimit/limit"
)

// loadPrefix begins the names of the groups that measure how load affects decisions with the default deadline. They
// are measured only if -only is given.
const loadPrefix = "load-"

// loadGroups returns groups of callers who wait for their answers, on a Redis that has a CPU to itself or shares one.
// It also returns bursts, and quiet keys beside a hot one.
func loadGroups(s settings, run string) (groups []group) {
	if s.Only == "" {
		return nil
	}
	gcra := contender{nameGCRA, ours, openDefault(limit.GCRA())}
	all := []contender{gcra, {nameLog, ours, openDefault(limit.SlidingLog())},
		{nameCounter16, ours, openDefault(limit.SlidingCounter(16, limit.Strict))}}
	keys, callers := thousands(float64(s.Keys)), inThisProcess(512, 2000)
	for _, shared := range []struct {
		name, title string
		busy        int
	}{{"", "", 0}, {"-half", ", half of a CPU for Redis", 1}, {"-fifth", ", a fifth of a CPU for Redis", 4}} {
		run := run + ":load" + shared.name
		groups = append(groups,
			group{name: loadPrefix + "uniform" + shared.name, title: fmt.Sprintf("%s keys, uniform, always allowed, deadline %v%s", keys, deadline, shared.title),
				workload: func() workload { return manyKeys(run, s.Keys) }, contenders: all, sizes: callers, share: 1, busy: shared.busy},
			group{name: loadPrefix + "zipf" + shared.name, title: fmt.Sprintf("%s keys, zipf(1.1), 100 a minute each, deadline %v%s", keys, deadline, shared.title),
				workload: func() workload {
					w := mostlyDenied(run, s.Keys)
					w.mixed = true
					return w
				}, contenders: []contender{gcra}, sizes: callers, share: 1, busy: shared.busy})
	}
	return append(groups, group{name: loadPrefix + "bursts", title: fmt.Sprintf("%s keys, uniform, %s calls a second in bursts, deadline %v", keys, thousands(burstRate), deadline),
		workload: func() workload { return manyKeys(run+":bursts", s.Keys) }, contenders: []contender{gcra},
		sizes: inThisProcess(300, 600, 1000, 2000), share: 1, drive: driveBursts},
		group{name: loadPrefix + "quiet", title: fmt.Sprintf("%d quiet keys beside callers of a hot one, deadline %v", quietKeys, deadline),
			workload: func() workload { return hotKey(run + ":beside") }, contenders: []contender{gcra},
			sizes: inThisProcess(12_000), share: 1, drive: driveBesideHotKey})
}

// withoutRedis returns the share of a cell's calls that Redis did not decide.
func (c *cell) withoutRedis() float64 {
	all := c.calls[allowed] + c.calls[denied] + c.calls[degraded] + c.calls[failed]
	return float64(c.calls[degraded]+c.calls[failed]) / float64(all)
}

// ratio returns the median of one metric divided by another in the same round.
func (c *cell) ratio(m, by metric) float64 { return medianRatio(c.column(m), c.column(by)) }

// loadTable returns a table of all cells of loadGroups.
func (r *report) loadTable() table {
	t := table{title: fmt.Sprintf("Under load, deadline %v", deadline), words: 3,
		head: []string{"workload", "callers", "", "decisions/s", "p50", "p99", "without Redis", "errors", "breaker opened"}}
	for i := range r.Cells {
		if c := &r.Cells[i]; strings.HasPrefix(c.workload, loadPrefix) {
			t.rows = append(t.rows, []string{c.workload, c.size.String(), c.subject, thousands(c.value(perSecond)), duration(c.value(p50)), duration(c.value(p99)),
				percent(c.withoutRedis()), fmt.Sprint(c.calls[failed]), fmt.Sprint(c.opened)})
		}
	}
	return t
}

// loadGoals returns goals for the cells of loadGroups. No call fails and no breaker opens, however slow Redis is.
// Redis decides all calls if they take less than half of the deadline.
func (r *report) loadGoals() (goals []goal) {
	for i := range r.Cells {
		c := &r.Cells[i]
		if !strings.HasPrefix(c.workload, loadPrefix) {
			continue
		}
		work := fmt.Sprintf("%s, %s, %s", c.workload, c.size.words(), c.subject)
		quick := goal{work: work, figure: "share decided by Redis, if p99 is under half of the deadline", bound: 0.999, atLeast: true, measured: math.NaN()}
		if us := c.value(p99); us < float64(deadline.Microseconds())/2 {
			quick.measured = 1 - c.withoutRedis()
		} else {
			quick.note = "p99 " + duration(us)
		}
		goals = append(goals, quick,
			goal{work: work, figure: "errors", measured: float64(c.calls[failed])},
			goal{work: work, figure: "times a breaker opened", measured: float64(c.opened)})
		if c.workload == loadPrefix+"quiet" {
			// A quiet call waits half a trip on average until the next trip begins, and then takes one. Twice the
			// median is three trips.
			goals = append(goals, goal{work: work, figure: "p99 by p50, which is one and a half trips", bound: 2, measured: c.ratio(p99, p50)})
		}
	}
	return goals
}
