package remote

import "slices"

// queue has the calls that wait for a trip, in order of arrival. It is guarded by the batcher's lock.
type queue struct {
	calls   []*call
	entries int // entries of all calls
	large   int // number of large calls
}

// A call with at least largeGroup entries, or at least largeWork units of work, is large: it takes a quarter of
// a trip or more, and leaves little room for others. After a trip with a large call, other calls go first: so
// they are delayed by one trip, and not by all the large calls that wait.
const (
	largeGroup = 32
	largeWork  = 25_000
)

func (c *call) entries() int { return max(1, len(c.group)) }

func (c *call) isLarge() bool { return len(c.group) >= largeGroup || c.work >= largeWork }

func (q *queue) len() int { return len(q.calls) }

func (q *queue) add(c *call) {
	q.calls = append(q.calls, c)
	q.count(c, 1)
}

func (q *queue) count(c *call, sign int) {
	q.entries += sign * c.entries()
	if c.isLarge() {
		q.large += sign
	}
}

// take empties the queue, which continues with another array, and returns what was in it.
func (q *queue) take(array []*call) (taken queue) {
	taken = *q
	*q = queue{calls: array[:0]}
	return taken
}

// putFirst puts others in front of the queue. It returns the queue's old array.
func (q *queue) putFirst(others queue) (array []*call) {
	array = q.calls
	q.calls = append(others.calls, array...)
	clear(array) // let go of the callers' contexts
	q.entries += others.entries
	q.large += others.large
	return array[:0]
}

// dropClaimed removes calls that have been answered.
func (q *queue) dropClaimed() {
	q.calls = slices.DeleteFunc(q.calls, func(c *call) bool {
		claimed := c.claimed()
		if claimed {
			q.count(c, -1)
		}
		return claimed
	})
}
