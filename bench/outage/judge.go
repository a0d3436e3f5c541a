package main

func judgeOutage(f *fleet, calls []call) {
	judgeMost(f, calls)
	f.judgeLeast(calls)
}

func judgeCutOff(f *fleet, calls []call) {
	judgeMost(f, calls)
	f.note("bound: 1 + the share of the instance that is cut off, %.2f", f.weights[cutOff])
}
