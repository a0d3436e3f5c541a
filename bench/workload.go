package main

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tierlimit/tierlimit/limit"
)

// workload says which keys are asked for, and the limits they are held to. The
// limits never deny, so that every subject does the whole work of a grant each
// time; and their state outlives the time between two requests of a key, so that
// none has the easier work of a key that does not exist. Keys begin with the name
// of the run, so that nothing else on a server uses them.
type workload struct {
	name string
	keys []string
	gcra limit.Limit
	log  limit.Limit
}

// hotKey asks for one key as fast as possible. Under GCRA each request takes 1 ms
// to pay off, and a billion may be owed. The log's window is so short that it
// takes a million requests a second to fill.
func hotKey(run string) workload {
	return workload{
		name: "hot",
		keys: []string{run + ":hot"},
		gcra: limit.PerSecond(1000).WithBurst(1_000_000_000),
		log:  limit.Per(100_000, 100*time.Millisecond),
	}
}

// manyKeys asks for n keys, each as often as any other: once in a while, so under
// GCRA each request takes 10 s to pay off.
func manyKeys(run string, n int) workload {
	w := workload{
		name: "many",
		keys: make([]string, n),
		gcra: limit.PerHour(360).WithBurst(1_000_000),
		log:  limit.PerDay(1_000_000),
	}
	for i := range w.keys {
		w.keys[i] = fmt.Sprintf("%s:user:%d", run, i)
	}
	return w
}

// picker returns a function that picks keys, for one caller.
func (w *workload) picker(caller int) func() string {
	if len(w.keys) == 1 {
		key := w.keys[0]
		return func() string { return key }
	}
	random := rand.New(rand.NewPCG(1, uint64(caller)))
	return func() string { return w.keys[random.IntN(len(w.keys))] }
}
