package service

import (
	"log/slog"
	"time"
)

// Options are the settings of a service. Those that envoyproxy/ratelimit has too mean the same as
// there.
type Options struct {
	// NearLimit is the part of a limit above which hits count as near it.
	NearLimit float32
	// ShadowMode allows all requests.
	ShadowMode bool
	// QuotaMode makes all limits quotas.
	QuotaMode bool
	// Headers adds headers to answers, under the names that follow.
	Headers                                   bool
	LimitHeader, RemainingHeader, ResetHeader string
	// DynamicMetadata adds the request, and the metadata of the limits that allowed it, to answers.
	DynamicMetadata bool
	// RememberDenials lets a process repeat Redis's denials by itself for a second. Redis does not count such hits.
	RememberDenials bool
	// ChargeSeparately charges each descriptor of a request on its own, even under algorithms that count only what is
	// allowed. Otherwise such descriptors are charged all or none.
	ChargeSeparately bool
	// Within is how long all trips of a request to Redis may take together, which is the limiters' deadline. It must
	// be set.
	Within time.Duration
	// Log gets every request with its answer, if its level is debug. If it is nil, nothing is logged.
	Log *slog.Logger
	// Now returns the current time. If it is nil, the system clock is used.
	Now func() time.Time
}
