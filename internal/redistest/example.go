package redistest

import "os"

// StartForExample starts a server for an Example function, which has no testing.TB. The function that it returns
// kills the server.
func StartForExample() (Endpoint, func(), error) {
	dir, err := os.MkdirTemp("", "redistest-")
	if err != nil {
		return Endpoint{}, nil, err
	}
	c, proc, err := launch(dir, plainArgs)
	if err != nil {
		_ = os.RemoveAll(dir) // in the system's temporary directory anyway
		return Endpoint{}, nil, err
	}
	return Endpoint{c.port}, func() { proc.kill(); _ = os.RemoveAll(dir) }, nil
}
