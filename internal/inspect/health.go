package inspect

import "time"

// Health is how a limiter and its Redis have been.
type Health struct {
	Masters []Master // of a Cluster; one node is one
	// WaitingUnits of WaitingKeys were granted without Redis, and wait to be charged there.
	WaitingUnits, WaitingKeys int64
	// TripCounts are trips to Redis since the limiter was made, by how long they took: at most as
	// many seconds as the bound of the same place, and more than the one before. The last is of
	// those above all bounds.
	TripBounds []float64
	TripCounts []uint64
}

// Master is a Redis that holds keys.
type Master struct {
	Address string // "" if it is not known
	State   string
	Since   time.Time // of that state
	// LastError is why it could not be asked last, "" if it always could.
	LastError   string
	LastErrorAt time.Time
}
