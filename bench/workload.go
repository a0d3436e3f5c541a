package main

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tierlimit/tierlimit/limit"
)

// workload says which keys are asked for, and the limits they are held to. Keys
// begin with the name of the run, so that nothing else on a server uses them.
type workload struct {
	name string // its group's
	keys []string
	// draws are indexes of keys in the order in which they are asked for, around
	// and around, each caller beginning elsewhere; nil: each key as often as any
	// other. They are drawn ahead, because drawing takes longer than some subjects.
	draws []uint32
	// The same limit in three forms: with a burst, for GCRA; for what counts in
	// windows; for the sliding log, which is to be kept short.
	gcra, window, log limit.Limit
	// mostly is what most decisions come to; also is what others may. Anything
	// else makes a cell unsound.
	mostly outcome
	also   []outcome
	mixed  bool // there is no "mostly"
	primed bool // its group's
}

// hotKey asks for one key as fast as possible, and it is always allowed. Under GCRA
// each request takes 1 ms to pay off, and a billion may be owed. The log's window
// is so short that it takes ten million requests a second to fill.
func hotKey(run string) workload {
	return workload{
		keys:   []string{run + ":hot"},
		gcra:   limit.PerSecond(1000).WithBurst(1_000_000_000),
		window: limit.PerHour(1_000_000_000),
		log:    limit.Per(100_000, 10*time.Millisecond), // the most that it may hold
		mostly: allowed,
	}
}

// manyKeys asks for n keys, each as often as any other, and they are always allowed:
// state outlives the time between two requests of a key, so that no subject has
// the easier work of a key that does not exist. Under GCRA each request takes 10 s
// to pay off.
func manyKeys(run string, n int) workload {
	return workload{
		keys:   users(run, n),
		gcra:   limit.PerHour(360).WithBurst(1_000_000),
		window: limit.PerHour(1_000_000),
		log:    limit.PerDay(100_000),
		mostly: allowed,
	}
}

// mostlyDenied asks for n keys, few of them very often. All are used up at the start,
// as far as subjects can, so that most is denied; otherwise that would take minutes.
func mostlyDenied(run string, n int) workload {
	hundred := limit.PerMinute(100)
	return workload{
		keys:   users(run+":zipf", n),
		draws:  zipf(n, 1_000_000),
		gcra:   hundred.WithBurst(100),
		window: hundred,
		log:    hundred,
		mostly: denied,
		also:   []outcome{allowed},
	}
}

// halfDenied asks for a thousand keys of which 20 units a second each are allowed: about
// half of what a busy fleet asks for.
func halfDenied(run string) workload {
	lim := limit.Per(200, 10*time.Second)
	return workload{
		keys:   users(run+":half", 1000),
		gcra:   lim.WithBurst(200),
		window: lim,
		log:    lim,
		mostly: allowed,
		also:   []outcome{denied},
		mixed:  true,
	}
}

// limitOfOne is used up by the first request.
var limitOfOne = limit.PerDay(1)

// hotLeased asks for one key that is always allowed, under a limit so large that leases
// of it serve a busy process.
func hotLeased(run string) workload {
	return workload{keys: []string{run + ":leased"}, gcra: limit.PerSecond(1_000_000_000), mostly: allowed}
}

// hotDenied asks for one key that is always denied.
func hotDenied(run string) workload {
	return workload{keys: []string{run + ":denied"}, log: limitOfOne, mostly: denied}
}

// manyDenied asks for n keys that are always denied, few of them very often.
func manyDenied(run string, n int) workload {
	return workload{
		keys:   users(run+":denied", n),
		draws:  zipf(n, 4_000_000),
		log:    limitOfOne,
		mostly: denied,
	}
}

// usedUp is one key that is used up, for its size in Redis. Its name is such that
// the longest of our keys has 24 bytes.
func usedUp(run string, contender int) workload {
	thousand := limit.PerHour(1000)
	return workload{
		keys:   []string{fmt.Sprintf("%s:m:%02d", run, contender)},
		gcra:   thousand.WithBurst(1000),
		window: thousand,
		log:    thousand,
	}
}

func users(prefix string, n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("%s:user:%d", prefix, i)
	}
	return keys
}

// zipf draws count of n keys, the r-th most frequent in proportion to r^-1.1.
func zipf(n, count int) []uint32 {
	z := rand.NewZipf(rand.New(rand.NewPCG(1, 1)), 1.1, 1, uint64(n-1))
	draws := make([]uint32, count)
	for i := range draws {
		draws[i] = uint32(z.Uint64())
	}
	return draws
}

// picker returns a function that picks keys, for one caller.
func (w *workload) picker(caller int) func() string {
	if len(w.keys) == 1 {
		key := w.keys[0]
		return func() string { return key }
	}
	random := rand.New(rand.NewPCG(2, uint64(caller)))
	if w.draws == nil {
		return func() string { return w.keys[random.IntN(len(w.keys))] }
	}
	at := random.IntN(len(w.draws))
	return func() string {
		if at++; at == len(w.draws) {
			at = 0
		}
		return w.keys[w.draws[at]]
	}
}
