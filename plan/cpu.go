package plan

import "github.com/tierlimit/tierlimit/limit"

// CPU is how much of Redis's time a decision takes, as a class, because the figures themselves depend
// on the machine, the load and the batch. "tierlimit plan" measures them on your machine.
type CPU uint8

// The classes, relative to the time of a GCRA decision (see docs/algorithms.md).
const (
	// Light takes up to about a tenth more than GCRA: GCRA and fixed window.
	Light CPU = iota
	// Medium takes up to about half as much again: counters of up to 32 sub-windows.
	Medium
	// Heavy takes more: counters of more sub-windows (a denial looks through all of them), and logs
	// (every unit is written).
	Heavy
)

// String returns "light", "medium" or "heavy".
func (c CPU) String() string {
	if c > Heavy {
		return "unknown"
	}
	return [...]string{Light: "light", Medium: "medium", Heavy: "heavy"}[c]
}

// CPU returns the candidate's class.
func (c Candidate) CPU() CPU {
	switch k := c.Algorithm.Buckets(); {
	case c.Algorithm.Same(limit.SlidingLog()) || k > 32:
		return Heavy
	case k > 0:
		return Medium
	}
	return Light
}
