package main

import (
	"fmt"
	"os/exec"
	"strconv"
	"time"
)

// deadline is the default deadline of a decision.
const deadline = 15 * time.Millisecond

// measureStopped measures this service while its Redis is stopped.
func measureStopped(binary, dir string, connections, callers, values int, lasts time.Duration) (result, error) {
	s, end, err := start(ownName, binary, dir, connections, deadline)
	if err != nil {
		return result{}, err
	}
	defer end()
	// As in production, the service has decided with Redis before.
	if _, err := s.measure(callers, values, lasts/2); err != nil {
		return result{}, err
	}
	if out, err := exec.Command("kill", "-STOP", strconv.Itoa(s.redis)).CombinedOutput(); err != nil {
		return result{}, fmt.Errorf("stopping Redis, process %d: %w: %s", s.redis, err, out)
	}
	return s.measure(callers, values, lasts) // Redis can be ended even while it is stopped
}
