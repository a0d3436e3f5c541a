package plan

import "github.com/tierlimit/tierlimit/limit"

// CPU is how much of Redis's time a decision takes, in classes, since the figures
// themselves depend on the machine, the load and the batch. "tierlimit plan" measures
// them on yours.
type CPU uint8

// The classes, by the time of GCRA's decisions (see docs/algorithms.md).
const (
	// Light is up to about a tenth more than GCRA: GCRA and fixed window.
	Light CPU = iota
	// Medium is up to about half as much again: counters of up to 32 sub-windows.
	Medium
	// Heavy is more: counters of more sub-windows (a denial looks through them), and
	// logs (every unit is written).
	Heavy
)

// String returns "light", "medium" or "heavy".
func (c CPU) String() string {
	switch c {
	case Light:
		return "light"
	case Medium:
		return "medium"
	case Heavy:
		return "heavy"
	}
	return "unknown"
}

// CPU is the candidate's class.
func (c Candidate) CPU() CPU {
	switch k := c.Algorithm.Buckets(); {
	case c.Algorithm.Same(limit.SlidingLog()) || k > 32:
		return Heavy
	case k > 0:
		return Medium
	}
	return Light
}
