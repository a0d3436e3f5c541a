// Package textbook holds the exact sliding log of textbooks, to measure limiters against, and a meter of the
// fullest window that a limiter lets through. Both are naive on purpose, and share no code with the limiters that
// they measure.
//
// Times are microseconds on any clock. For one key they must not go back.
package textbook

import "time"

// Log is the exact sliding log: it remembers when each unit was granted.
type Log struct {
	quota   int64
	granted windows
}

// New returns a Log that grants each key quota units in any window.
func New(quota int64, window time.Duration) *Log {
	return &Log{quota: quota, granted: newWindows(window)}
}

// Allow grants the key one unit at the given time if fewer units than the quota have been granted within the window
// before it. A unit that is exactly one window old has left. A denied unit does not count.
func (l *Log) Allow(key string, at int64) bool { return l.AllowN(key, at, 1) }

// AllowN grants the given number of units, or none.
func (l *Log) AllowN(key string, at, cost int64) bool {
	if l.granted.count(key, at)+cost > l.quota {
		return false
	}
	l.granted.add(key, at, cost)
	return true
}
