package ledger

import "time"

// These are times in the tests.
const (
	noon   = int64(12 * time.Hour)
	second = int64(time.Second)
	minute = int64(time.Minute)
)
