package redistest

import (
	"fmt"
	"os"
	"os/exec"
)

// binaryVariable names the environment variable that chooses the server under test.
const binaryVariable = "TIERLIMIT_REDIS_SERVER"

// findBinary returns the path of the server to run.
func findBinary() (string, error) {
	if chosen := os.Getenv(binaryVariable); chosen != "" {
		path, err := exec.LookPath(chosen)
		if err != nil {
			return "", fmt.Errorf("redistest: %s=%q cannot be run: %w; name an existing redis-server or valkey-server", binaryVariable, chosen, err)
		}
		return path, nil
	}
	for _, name := range []string{"redis-server", "valkey-server"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("redistest: neither redis-server nor valkey-server is on PATH; run `make test`, which installs one, or install the package redis-server (Debian, Ubuntu) or redis (Fedora, Alpine, Homebrew), 6.2 or newer, or set %s to a server's path", binaryVariable)
}
