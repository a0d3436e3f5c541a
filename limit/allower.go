package limit

import "context"

// Allower decides about requests for a key. A *tiered.Rule is an Allower. Code that takes an Allower
// instead of a rule can be tested with an [AllowerFunc], without a limiter.
//
// Implementations are safe for concurrent use.
type Allower interface {
	// Allow is AllowN with a cost of 1.
	Allow(ctx context.Context, key string) (Decision, error)
	// AllowN charges cost units to key if they fit, and reports in the Decision whether they did. A
	// denial is not an error.
	AllowN(ctx context.Context, key string, cost int64) (Decision, error)
}

// AllowerFunc adapts a function to the [Allower] interface. A test can pass one that allows everything,
// denies, or fails.
type AllowerFunc func(ctx context.Context, key string, cost int64) (Decision, error)

// Allow calls f with a cost of 1.
func (f AllowerFunc) Allow(ctx context.Context, key string) (Decision, error) { return f(ctx, key, 1) }

// AllowN calls f.
func (f AllowerFunc) AllowN(ctx context.Context, key string, cost int64) (Decision, error) {
	return f(ctx, key, cost)
}
