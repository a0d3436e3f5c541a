package main

import "fmt"

type line struct {
	name string
	plan plan
}

type group struct {
	name  string
	lines []line
}

// with is the recommended plan, changed.
func with(name string, change func(*plan)) line {
	p := recommended()
	change(&p)
	return line{name, p}
}

func groups() []group {
	return []group{
		{"share", []line{
			with("full limit each", func(p *plan) { p.share, p.charge, p.bothMustAgree = "full", "", false }),
			with("1/fleet", func(p *plan) { p.share, p.charge, p.bothMustAgree = "equal", "", false }),
			with("own grants of the last window", func(p *plan) { p.share = "own" }),
			with("proportional, of any age", func(p *plan) { p.share = "stale" }),
			with("proportional if fresh, else own", func(p *plan) { p.share = "proportional" }),
			with("additive if fresh, else own", func(p *plan) { p.share = "additive-fresh" }),
			with("additive, fading with age (recommended)", func(p *plan) {}),
			with("additive", func(p *plan) { p.share = "additive" }),
		}},
		{"ledger", ledgers()},
		{"recovery", recoveries()},
		{"loads and windows", loads()},
		{"algorithms", algorithms()},
		{"growth: quotas", growth()},
		{"moves, restarts, partitions", moves()},
		{"amnesia", amnesia()},
	}
}

func ledgers() (lines []line) {
	for _, k := range []int64{8, 12, 16} {
		for _, strict := range []bool{false, true} {
			for _, l := range []float64{1, 3, 20} {
				lines = append(lines, with(fmt.Sprintf("%d sub-windows, strict: %v, load %.0f", k, strict, l), func(p *plan) {
					p.buckets, p.strictLedger, p.load = k, strict, l
				}))
			}
		}
	}
	return lines
}

func recoveries() (lines []line) {
	for _, charge := range []string{"", "now", "end", "middle", "spread", "start"} {
		for _, both := range []bool{false, true} {
			lines = append(lines, with(fmt.Sprintf("charged %q, both must agree: %v", charge, both), func(p *plan) { p.charge, p.bothMustAgree = charge, both }))
		}
	}
	for _, settle := range []string{"alone", "reconciled", "window"} {
		lines = append(lines, with(fmt.Sprintf("settled: %s, charging takes 0 to 5 s", settle), func(p *plan) { p.settle, p.chargeTakes, p.chargeUneven = settle, 5*second, true }))
		for _, takes := range []int64{0, 5 * second} {
			lines = append(lines, with(fmt.Sprintf("settled: %s, charging takes %d s", settle, takes/second), func(p *plan) { p.settle, p.chargeTakes = settle, takes }))
		}
	}
	for _, charge := range []string{"", "middle"} {
		lines = append(lines, with(fmt.Sprintf("settled: window, charged %q ", charge), func(p *plan) { p.settle, p.charge = "window", charge }))
	}
	for _, empty := range []string{"end", "middle", "spread"} {
		lines = append(lines, with(fmt.Sprintf("memory lost in a short outage (2 s), charged %q", empty), func(p *plan) {
			p.charge, p.empty = empty, true
			p.down, p.up, p.length = 33*second, 35*second, 70*second
		}))
	}
	return lines
}

func loads() (lines []line) {
	for _, w := range []int64{second, 10 * second, 3600 * second} {
		for _, l := range []float64{0.5, 1, 3} {
			for _, fleet := range []struct {
				name    string
				weights []float64
			}{{"70/15/10/5", skewed}, {"4 equal", uniform}, {"20 zipf", zipf(20)}} {
				lines = append(lines, with(fmt.Sprintf("window %d s, load %.1f, %s", w/second, l, fleet.name), func(p *plan) {
					p.window, p.load, p.weights = w, l, fleet.weights
				}))
			}
		}
	}
	for _, share := range []string{"proportional", "own", "additive", "additive-fresh", "additive-fading"} {
		for _, w := range []int64{10 * second, 3600 * second} {
			lines = append(lines, with(fmt.Sprintf("window %d s, load 0.6, %s", w/second, share), func(p *plan) { p.load, p.share, p.window = 0.6, share, w }))
			lines = append(lines, with(fmt.Sprintf("window %d s, load 0.6, 20 zipf, %s", w/second, share), func(p *plan) { p.load, p.share, p.window, p.weights = 0.6, share, w, zipf(20) }))
		}
		lines = append(lines, with("load 0.5, in the outage 3, "+share, func(p *plan) { p.load, p.outageLoad, p.share = 0.5, 3, share }))
		lines = append(lines, with("load 0.5, in the outage 1, "+share, func(p *plan) { p.load, p.outageLoad, p.share = 0.5, 1, share }))
	}
	return lines
}

func algorithms() (lines []line) {
	for _, a := range []string{"log", "strict", "estimate", "gcra", "fixed"} {
		for _, l := range []float64{0.5, 1, 3} {
			lines = append(lines, with(fmt.Sprintf("%s, load %.1f", a, l), func(p *plan) { p.algorithm, p.load = a, l }))
			if a == "gcra" {
				lines = append(lines, with(fmt.Sprintf("%s, load %.1f, charged as debt at the share", a, l), func(p *plan) { p.algorithm, p.load, p.charge = a, l, "debt" }))
			}
		}
		lines = append(lines, with(fmt.Sprintf("%s, load 1, in the outage 3", a), func(p *plan) { p.algorithm, p.load, p.outageLoad = a, 1, 3 }))
		lines = append(lines, with(fmt.Sprintf("%s, load 0.5, in the outage 3", a), func(p *plan) { p.algorithm, p.load, p.outageLoad = a, 0.5, 3 }))
		lines = append(lines, with(fmt.Sprintf("%s, load 3, without the least that was free", a), func(p *plan) { p.algorithm, p.leastFree = a, false }))
	}
	return lines
}

// growth: instances begin one after another; then Redis is lost, and all of them are
// offered as much as they can take.
func growth() (lines []line) {
	for _, share := range []string{"stale", "proportional", "own", "additive-fresh", "additive-fading", "additive"} {
		for _, every := range []int64{second / 10, second / 2, 2 * second} {
			for _, stop := range []bool{false, true} {
				for _, n := range []int{4, 10} {
					lines = append(lines, with(fmt.Sprintf("%s, %d instances, one each %.1f s, earlier ones stop: %v", share, n, float64(every)/1e6, stop), func(p *plan) {
						p.share, p.grow, p.growStop, p.load, p.outageLoad = share, every, stop, 1, 4
						p.weights = make([]float64, n)
						for i := range p.weights {
							p.weights[i] = 1 / float64(n)
						}
						p.moved = p.weights
						p.down = every * int64(n)
						p.up = p.down + 30*second
						p.length = p.up + 30*second
					}))
				}
			}
		}
	}
	return lines
}

func moves() (lines []line) {
	lines = append(lines,
		with("all on one instance; moves evenly to all of 4 at the cut", func(p *plan) { p.weights, p.moved = []float64{1, 0, 0, 0}, uniform }),
		with("70/15/10/5 becomes 5/10/15/70 at the cut", func(p *plan) { p.moved = []float64{0.05, 0.10, 0.15, 0.70} }),
		with("the heaviest of 70/15/10/5 is cut off", func(p *plan) { p.cutOff = 1 }),
		with("the heaviest is cut off, no charge and no settling", func(p *plan) { p.cutOff, p.charge, p.bothMustAgree = 1, "", false }),
		with("one of 4 equal is cut off", func(p *plan) { p.cutOff, p.weights = 1, uniform }),
	)
	for _, part := range []float64{1, 0.8} {
		for _, debt := range []bool{false, true} {
			for _, reversed := range []bool{false, true} {
				for _, fleet := range []struct {
					name    string
					weights []float64
				}{{"70/15/10/5", skewed}, {"4 equal", uniform}} {
					lines = append(lines, with(fmt.Sprintf("restarts, %s, lightest first %v, debt %v, of 1/fleet: %.1f", fleet.name, reversed, debt, part), func(p *plan) {
						p.weights, p.restartEvery, p.restartDebt, p.restartPart, p.reversed = fleet.weights, p.window, debt, part, reversed
						p.down, p.up, p.length = 33*second, 93*second, 120*second
					}))
				}
			}
		}
	}
	return lines
}

func amnesia() (lines []line) {
	for _, heal := range []string{"", "raise", "since"} {
		for _, lost := range []int64{second / 2, 2 * second, 5 * second} {
			lines = append(lines, with(fmt.Sprintf("%.1f s of writes lost, load 3, healed by %q", float64(lost)/1e6, heal), func(p *plan) {
				p.heal, p.lost = heal, lost
				p.flushAt, p.length = 3*p.window+p.window/3, 6*p.window
			}))
		}
	}
	for _, heal := range []string{"", "reply", "beat", "both"} {
		for _, l := range []float64{1, 3} {
			for _, w := range []int64{10 * second, 60 * second} {
				lines = append(lines, with(fmt.Sprintf("FLUSHALL, load %.0f, window %d s, noticed by %q", l, w/second, heal), func(p *plan) {
					p.heal, p.load, p.window = heal, l, w
					p.flushAt, p.length = 3*w+w/3, 6*w
				}))
			}
		}
	}
	return lines
}
