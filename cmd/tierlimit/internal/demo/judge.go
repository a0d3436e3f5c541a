package demo

import (
	"cmp"
	"slices"
	"time"

	"github.com/tierlimit/tierlimit/internal/textbook"
	"github.com/tierlimit/tierlimit/limit"
)

// settled is the age at which a decision is judged. By then, all decisions made before it are known and
// can be put in order.
const settled = time.Second

// judge compares the fleet's decisions with the textbook, which sees all instances at once and knows
// nothing of tiers. It finds the most units that any key got in a window, and how many requests an
// exact log would have let through. It is not safe for concurrent use.
type judge struct {
	exact   *textbook.Log
	worst   *textbook.Worst
	pending []verdict

	allowed, exactAllowed int64
}

// verdict is a decision. Its time is Redis's stamp of the charge if there is one, and otherwise this
// process's time, both in microseconds.
type verdict struct {
	at      int64
	key     string
	allowed bool
}

func newJudge(l limit.Limit) *judge {
	return &judge{exact: textbook.New(l.Quota(), l.Window()), worst: textbook.NewWorst(l.Window())}
}

func (j *judge) add(v verdict) { j.pending = append(j.pending, v) }

// until judges the decisions up to the time then. It returns the most units that any key had in a
// window that ended since the last call.
func (j *judge) until(then int64) (fullest int64) {
	slices.SortStableFunc(j.pending, func(a, b verdict) int { return cmp.Compare(a.at, b.at) })
	judged := 0
	for _, v := range j.pending {
		if v.at > then {
			break
		}
		judged++
		if j.exact.Allow(v.key, v.at) {
			j.exactAllowed++
		}
		if v.allowed {
			j.allowed++
			fullest = max(fullest, j.worst.Grant(v.key, v.at))
		}
	}
	j.pending = slices.Delete(j.pending, 0, judged)
	return fullest
}
