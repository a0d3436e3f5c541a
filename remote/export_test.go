package remote

import "context"

// WithoutLibrary makes the Script leave no library on the server, so that it runs by EVALSHA. Call it before the
// first run.
func (s *Script) WithoutLibrary() { s.known.Store(&s.script) }

// callOf returns the call for an entry.
func callOf(ctx context.Context, e Entry) *call { return new(callPool).single(ctx, &e) }
