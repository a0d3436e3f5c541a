package main

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tierlimit/tierlimit/limit"
)

// workload is the keys to ask for, and their limits. Keys begin with the name of the run, so that nothing else on a
// server uses them.
type workload struct {
	name string // the group's name
	keys []string
	// draws are indexes of keys in the order of the requests. Each caller begins at a random position and goes around
	// and around. If draws is nil, all keys are equally frequent. The indexes are drawn ahead, because drawing takes
	// longer than some subjects do.
	draws []uint32
	// The same limit in three forms: with a burst for GCRA, for algorithms that count in windows, and for the sliding
	// log, which must stay short.
	gcra, window, log limit.Limit
	// mostly is the most frequent outcome, and also lists other acceptable outcomes. Any other outcome makes a cell
	// unsound.
	mostly outcome
	also   []outcome
	mixed  bool // no outcome needs to be the most frequent
	primed bool // the group's setting
}

// hotKey asks for one key as fast as possible, and is always allowed. Under GCRA each request takes 1 ms to pay off,
// and a billion requests may be owed. The log's window is so short that only ten million requests a second would fill
// it.
func hotKey(run string) workload {
	return workload{
		keys:   []string{run + ":hot"},
		gcra:   limit.PerSecond(1000).WithBurst(1_000_000_000),
		window: limit.PerHour(1_000_000_000),
		log:    limit.Per(100_000, 10*time.Millisecond), // the most that a log can hold
		mostly: allowed,
	}
}

// manyKeys asks for n equally frequent keys, and is always allowed. State outlives the time between two requests for
// a key, so that no subject has the easier work of a key that does not exist. Under GCRA each request takes 10 s to
// pay off.
func manyKeys(run string, n int) workload {
	return workload{
		keys:   users(run, n),
		gcra:   limit.PerHour(360).WithBurst(1_000_000),
		window: limit.PerHour(1_000_000),
		log:    limit.PerDay(100_000),
		mostly: allowed,
	}
}

// mostlyDenied asks for n keys, a few of them very often. All keys are used up at the start, as far as subjects can
// do that, so that most requests are denied. Without that, it would take minutes to get there.
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

// halfDenied asks for a thousand keys, of which each is allowed 20 units a second. That is about half of what a busy
// fleet asks for.
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

// limitOfOne is a limit that the first request uses up.
var limitOfOne = limit.PerDay(1)

// hotLeased asks for one key that is always allowed, under a limit that is large enough for leases to serve a busy
// process.
func hotLeased(run string) workload {
	return workload{keys: []string{run + ":leased"}, gcra: limit.PerSecond(1_000_000_000), mostly: allowed}
}

// hotDenied asks for one key that is always denied.
func hotDenied(run string) workload {
	return workload{keys: []string{run + ":denied"}, log: limitOfOne, mostly: denied}
}

// manyDenied asks for n keys that are always denied, a few of them very often.
func manyDenied(run string, n int) workload {
	return workload{
		keys:   users(run+":denied", n),
		draws:  zipf(n, 4_000_000),
		log:    limitOfOne,
		mostly: denied,
	}
}

// usedUp is one key that gets used up, to measure its size in Redis. Its name is chosen so that the longest of our
// keys has 24 bytes.
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

// zipf draws count indexes of n keys. The r-th most frequent key has a frequency in proportion to r^-1.1.
func zipf(n, count int) []uint32 {
	z := rand.NewZipf(rand.New(rand.NewPCG(1, 1)), 1.1, 1, uint64(n-1))
	draws := make([]uint32, count)
	for i := range draws {
		draws[i] = uint32(z.Uint64())
	}
	return draws
}

// picker returns a function that picks one caller's keys.
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
