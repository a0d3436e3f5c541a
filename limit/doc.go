// Package limit defines the types that all packages of tierlimit share: a [Limit]
// (how many units per window), an [Algorithm] (how they are counted), a
// [Decision] (the answer to a request, and the [Tier] that made it), and the errors.
//
// It imports nothing else of this module, so code that only passes limits and decisions around need not
// depend on Redis or on Prometheus.
//
// All types are values; copy them freely. Everything in this package is safe for concurrent use.
package limit
