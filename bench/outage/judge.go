package main

func judgeOutage(f *fleet, calls []call) {
	judgeMost(f, calls)
	f.judgeLeast(calls, least)
}

func judgeFlapping(f *fleet, calls []call) {
	judgeMost(f, calls)
	f.judgeLeast(calls, leastWhileFlapping)
}

func judgeCutOff(f *fleet, calls []call) {
	judgeMost(f, calls)
	f.note("bound: 1 + the share of the instance that is cut off, %.2f", f.weights[cutOff])
}

func judgeMostCutOff(f *fleet, calls []call) {
	judgeMost(f, calls)
	f.note("bound: 1 + the shares of the instances that are cut off, %.2f", maxCutOff)
}

func judgeCutOffInTurn(f *fleet, calls []call) {
	judgeMost(f, calls)
	f.note("bound: 1 + the shares of the instances that are cut off, %.2f: a quarter, a third of what three granted, half of what two did", cutOffInTurn)
}

// judgeRestart notes the bound for a rolling restart. A new process knows neither its predecessor's part of the
// traffic nor how much of it is still in the window.
func judgeRestart(f *fleet, calls []call) {
	judgeMost(f, calls)
	sum, n := 1.0, float64(len(f.weights))
	largest := sum
	for _, w := range f.weights {
		largest = max(largest, sum+1/n) // the predecessor's share and its successor's
		sum += 1/n - w
	}
	f.note("bound: the shares of instances not yet replaced and 1/fleet for each that was or is being replaced, here %.2f", largest)
}

// judgeScaleUp notes the bound when instances are added that know nothing of the fleet.
func judgeScaleUp(f *fleet, calls []call) {
	judgeMost(f, calls)
	n := len(f.weights)
	added := float64(scaledUp-n) / scaledUp
	f.note("bound: 1/%d for each of the %d instances that are added, beside the shares of those there were: %.2f if traffic does not move, %.2f in the worst case",
		scaledUp, scaledUp-n, 1+added, 2-1/float64(n)+added)
}

// judgeShares notes the bound when instances know different things about a key.
func judgeShares(f *fleet, calls []call) {
	judgeMost(f, calls)
	f.note("bound: quotas of %d instances sum to 2-1/n = %.2f at most", len(f.weights), 2-1/float64(len(f.weights)))
}
