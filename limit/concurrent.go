package limit

// Concurrent returns a limit without a window: at most n units may be held at the same time, such
// as requests in flight, jobs that run, or connections of a database. Units are not used up: their
// holder gives them back. Rules with such a limit are asked with tiered.Rule.Acquire, not
// with Allow.
func Concurrent(n int64) Limit { return Limit{quota: n, concurrent: true} }

// IsConcurrent reports whether the limit is one of [Concurrent]: its quota is how many units may
// be held at the same time, and its window is 0.
func (l Limit) IsConcurrent() bool { return l.concurrent }

// concurrentWindow stands in place of the window where a limit is written.
const concurrentWindow = "concurrent"

// Concurrency is the algorithm of limits of [Concurrent]: Redis keeps how many units each process
// holds. It cannot be used with other limits, nor other algorithms with those limits, so no rule
// has to name it.
func Concurrency() Algorithm { return Algorithm{kind: kindConcurrency} }
