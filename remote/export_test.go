package remote

// WithoutLibrary makes the Script leave no library on the server: it is run by
// EVALSHA. Call it before the first run.
func (s *Script) WithoutLibrary() { s.plain.Store(true) }
