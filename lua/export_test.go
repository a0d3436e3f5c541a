package lua

// These are for tests outside of the package. They cannot be inside, because the package that starts Redis for
// tests imports this one.
var (
	Decide = decide
	Source = source
)
