// Package limit holds the words the rest of tierlimit is written in: a [Limit]
// (how many units per window), an [Algorithm] (how they are counted), a
// [Decision] (what was answered, and which [Tier] answered), and the errors.
//
// It imports nothing else of this module, so that code which only passes
// limits and decisions around need not depend on Redis or on Prometheus.
//
// All types are values: copy them freely. Everything in this package is safe
// for concurrent use.
package limit
