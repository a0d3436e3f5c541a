package remote

import "context"

// WithoutLibrary makes the Script leave no library on the server: it is run by
// EVALSHA. Call it before the first run.
func (s *Script) WithoutLibrary() { s.plain.Store(true) }

// callOf is the call for an entry.
func callOf(ctx context.Context, e Entry) *call { return new(callPool).single(ctx, &e) }
