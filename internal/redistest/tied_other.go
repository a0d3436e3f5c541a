//go:build !linux

package redistest

import "os/exec"

// StartTied starts cmd. Only Linux can tie it to the life of this process; elsewhere a killed test binary leaves
// its servers running.
func StartTied(cmd *exec.Cmd) error { return cmd.Start() }
