package limit

// Concurrent returns a limit without a window: at most n units may be held at the same time, such as
// requests in flight, running jobs, or database connections. Units are not used up; their holder gives
// them back. Call tiered.Rule.Acquire, not Allow, on rules with such a limit.
func Concurrent(n int64) Limit { return Limit{quota: n, concurrent: true} }

// IsConcurrent reports whether the limit is one of [Concurrent]. Its quota is the number of units that
// may be held at the same time, and its window is 0.
func (l Limit) IsConcurrent() bool { return l.concurrent }

// concurrentWindow replaces the window in the text form of a limit of [Concurrent].
const concurrentWindow = "concurrent"

// Concurrency is the algorithm of limits of [Concurrent]: Redis records how many units each process
// holds. It cannot be used with other limits, and limits of [Concurrent] cannot be used with other
// algorithms. So no rule has to name it.
func Concurrency() Algorithm { return Algorithm{kind: kindConcurrency} }
