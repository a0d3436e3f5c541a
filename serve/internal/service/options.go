package service

import "time"

// Options are settings of a service. Those that are not set mean what they do in
// envoyproxy/ratelimit.
type Options struct {
	// NearLimit is the part of a limit above which hits count as near it.
	NearLimit float32
	// ShadowMode lets all requests go on.
	ShadowMode bool
	// QuotaMode makes all limits quotas.
	QuotaMode bool
	// Headers adds headers to answers, under these names.
	Headers                                   bool
	LimitHeader, RemainingHeader, ResetHeader string
	// DynamicMetadata adds the request, and the metadata of what passed, to answers.
	DynamicMetadata bool
	// RememberDenials lets a process answer by itself for a second what Redis denied. Such
	// hits are not counted.
	RememberDenials bool
	// ChargeSeparately charges each descriptor of a request by itself, also under algorithms
	// that count what was allowed only. Otherwise these are charged all or none.
	ChargeSeparately bool
	// Within is how long a request may take for all its trips to Redis together: as long as the
	// limiters' deadline. It must be set.
	Within time.Duration
	// Now is the clock; nil for the system's.
	Now func() time.Time
}
