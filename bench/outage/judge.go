package main

func judgeOutage(f *fleet, calls []call) {
	judgeMost(f, calls)
	f.judgeLeast(calls)
}

func judgeCutOff(f *fleet, calls []call) {
	judgeMost(f, calls)
	f.note("bound: 1 + the share of the instance that is cut off, %.2f", f.weights[cutOff])
}

// judgeRestart says what bounds a rolling restart: a new process does not know which
// part of the traffic its predecessor had.
func judgeRestart(f *fleet, calls []call) {
	judgeMost(f, calls)
	sum, n := 1.0, float64(len(f.weights))
	largest := sum
	for _, w := range f.weights {
		sum += 1/n - w
		largest = max(largest, sum)
	}
	f.note("bound: the shares of instances not yet replaced and 1/fleet for each that was, here %.2f; 2-1/n in the worst order", largest)
}

// judgeShares says what bounds quotas when instances know different things of a key.
func judgeShares(f *fleet, calls []call) {
	judgeMost(f, calls)
	f.note("bound: quotas of %d instances sum to 2-1/n = %.2f at most", len(f.weights), 2-1/float64(len(f.weights)))
}
