package tiered

import "runtime"

// yieldEvery is how many decisions of a tier are made in this process, about, until other goroutines
// get a turn.
const yieldEvery = 64

// yield lets other goroutines run now and then if some wait for Redis. Callers that are decided in
// this process may ask again at once. If they are more than there are processors, the goroutine that
// is to read Redis's answer waits until each of the others has used up its time slice: with 64 callers
// of denied keys one call in ten that asked Redis missed the deadline, and none does since they yield.
// While nobody waits for Redis, nothing is yielded.
//
// decisions is how many were made, see [decisionCounts.add].
func (l *Limiter) yield(decisions uint64) {
	if decisions%yieldEvery == 0 && l.shards.Asked() {
		runtime.Gosched()
	}
}
