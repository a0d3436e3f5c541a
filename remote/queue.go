package remote

import "slices"

// queue is the calls that wait for a trip, in order of arrival. It is guarded by the batcher's
// lock.
type queue struct {
	calls   []*call
	entries int // of the calls
	groups  int // of the calls that are large groups
}

// largeGroup is how many entries a group has at least that leaves little room for others on
// its trip. After a trip with such a group, others go first: they are delayed by one trip, and
// not by all the groups that wait.
const largeGroup = 32

func (c *call) entries() int { return max(1, len(c.group)) }

func (c *call) isLargeGroup() bool { return len(c.group) >= largeGroup }

func (q *queue) len() int { return len(q.calls) }

func (q *queue) add(c *call) {
	q.calls = append(q.calls, c)
	q.count(c, 1)
}

func (q *queue) count(c *call, sign int) {
	q.entries += sign * c.entries()
	if c.isLargeGroup() {
		q.groups += sign
	}
}

// take empties the queue, which goes on with another array.
func (q *queue) take(array []*call) (taken queue) {
	taken = *q
	*q = queue{calls: array[:0]}
	return taken
}

// putFirst puts others in front. It returns the queue's old array.
func (q *queue) putFirst(others queue) (array []*call) {
	array = q.calls[:0]
	q.calls = append(others.calls, q.calls...)
	q.entries += others.entries
	q.groups += others.groups
	return array
}

// dropClaimed takes out calls that have been answered.
func (q *queue) dropClaimed() {
	q.calls = slices.DeleteFunc(q.calls, func(c *call) bool {
		claimed := c.claimed()
		if claimed {
			q.count(c, -1)
		}
		return claimed
	})
}
