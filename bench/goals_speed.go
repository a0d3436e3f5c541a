package main

import (
	"fmt"
	"strings"
)

// bestPeer stands for the fastest other limiter of a workload and size.
const bestPeer = "the best peer"

// speedGoal is a goal for one of our figures relative to another subject's.
type speedGoal struct {
	workload string
	size     size
	subject  string
	metric   metric
	atLeast  bool
	bound    float64
	than     string
}

// speedGoals returns the goals for decisions by Redis.
func (r *report) speedGoals() (goals []goal) {
	var wanted []speedGoal
	faster := func(workload string, z size, subject string, bound float64, than string) {
		wanted = append(wanted, speedGoal{workload, z, subject, perSecond, true, bound, than})
	}
	atMost := func(workload string, z size, subject string, m metric, bound float64, than string) {
		wanted = append(wanted, speedGoal{workload, z, subject, m, false, bound, than})
	}
	fleet := func(processes, callers int) size { return size{processes, callers} }
	one := func(callers int) size { return size{callers: callers} }

	faster(fleetUniform, fleet(16, 4), nameGCRA, 1.6, nameRedisRate)
	faster(fleetUniform, fleet(16, 4), nameGCRA, 1.15, bestPeer)
	atMost(fleetUniform, fleet(16, 4), nameGCRA, redisCPU, 0.75, nameRedisRate)
	faster(fleetUniform, fleet(16, 4), nameLog, 1.2, nameRedisRate)
	faster(fleetHot, fleet(16, 4), nameGCRA, 2.5, nameRedisRate)
	faster(fleetHot, fleet(16, 4), nameGCRA, 1.3, bestPeer)
	faster(fleetHot, fleet(16, 4), nameLog, 2, nameRedisRate)
	faster(fleetUniform, fleet(16, 16), nameGCRA, 3.5, nameRedisRate)
	faster(fleetUniform, fleet(16, 16), nameGCRA, 1.7, bestPeer)
	faster(fleetUniform, fleet(16, 16), nameLog, 2, nameRedisRate)
	faster(fleetUniform, fleet(32, 1), nameGCRA, 1, nameRedisRate)
	atMost(fleetUniform, fleet(32, 1), nameGCRA, redisCPU, 1, nameRedisRate)
	faster(fleetUniform, fleet(32, 1), nameLog, 0.9, nameRedisRate)
	for _, m := range []metric{p50, p99} {
		atMost(fleetOpen, fleet(16, 4), nameGCRA, m, 1.1, nameRedisRate)
		atMost(fleetOpen, fleet(16, 4), nameLog, m, 1.2, nameRedisRate)
	}

	for _, callers := range []int{1, 4} {
		atMost(farGroup, one(callers), nameGCRA, p50, 1.1, nameRedisRate)
		atMost(farGroup, one(callers), nameLog, p50, 1.2, nameRedisRate)
	}

	atMost("alone", one(1), nameGCRA, p50, 1.05, nameRedisRate)
	atMost("alone", one(1), nameLog, p50, 1.2, nameRedisRate)
	atMost("uniform", one(1), nameGCRA, redisCPU, 1, nameRedisRate)
	atMost("uniform", one(1), nameLog, redisCPU, 1.2, nameRedisRate)
	for _, callers := range []int{2, 4, 8} {
		faster("uniform", one(callers), nameGCRA, 1, bestPeer)
		faster("uniform", one(callers), nameLog, 1, nameRedisRate)
	}
	for _, want := range []struct {
		callers int
		bound   float64
	}{{16, 1.2}, {32, 1.4}} {
		faster("uniform", one(want.callers), nameGCRA, want.bound, bestPeer)
		faster("uniform", one(want.callers), nameLog, 1.2, nameRedisRate)
	}
	faster("uniform", one(64), nameGCRA, 3.5, nameRedisRate)
	faster("uniform", one(64), nameGCRA, 1.7, bestPeer)
	faster("uniform", one(64), nameLog, 2, nameRedisRate)
	atMost("uniform", one(64), nameGCRA, p99, 0.5, nameRedisRate)
	faster("uniform", one(512), nameGCRA, 5, nameRedisRate)
	faster("uniform", one(512), nameGCRA, 2.4, bestPeer)
	faster("uniform", one(512), nameLog, 2.5, nameRedisRate)
	atMost("uniform", one(512), nameGCRA, p99, 0.5, nameRedisRate)
	faster("hot", one(64), nameGCRA, 10, nameRedisRate)
	faster("hot", one(64), nameLog, 8, nameRedisRate)
	faster("hot", one(512), nameGCRA, 16, nameRedisRate)
	faster("hot", one(512), nameLog, 12, nameRedisRate)

	for _, w := range wanted {
		goals = append(goals, r.speedGoal(w))
	}
	return goals
}

func (r *report) speedGoal(w speedGoal) goal {
	other, note := r.cell(w.workload, w.size, w.than), ""
	if w.than == bestPeer {
		other = r.bestPeer(w.workload, w.size)
		note = other.subject
	}
	figures := map[metric]string{perSecond: "decisions/s", p50: "p50", p99: "p99", redisCPU: "Redis CPU"}
	return goal{
		work: w.workload + ", " + w.size.words(), bound: w.bound, atLeast: w.atLeast, note: note,
		figure:   fmt.Sprintf("%s: %s by that of %s", w.subject, figures[w.metric], w.than),
		measured: r.cell(w.workload, w.size, w.subject).ratioTo(other, w.metric),
	}
}

// errorGoals returns the goals that no call of ours fails, or is decided without Redis or otherwise than its workload
// says, while callers wait for their answers. Without them, decisions without Redis would only look fast.
func (r *report) errorGoals() (goals []goal) {
	for _, from := range []struct {
		work  string
		fleet bool
	}{{"many processes, callers who wait", true}, {"one process, callers who wait", false}} {
		var strays uint64
		measured := false
		for i := range r.Cells {
			c := &r.Cells[i]
			waits := c.workload != fleetOpen && c.workload != farGroup && !strings.HasPrefix(c.workload, loadPrefix)
			if c.role == ours && waits && c.size.processes > 0 == from.fleet {
				measured = true
				strays += c.strays()
			}
		}
		if measured {
			goals = append(goals, goal{work: from.work, figure: "calls that failed or were decided without Redis", measured: float64(strays)})
		}
	}
	return goals
}
