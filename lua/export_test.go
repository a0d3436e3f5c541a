package lua

// For tests outside of the package, since what starts Redis for tests imports it.
var (
	Decide = decide
	Source = source
)
