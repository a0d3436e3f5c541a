//go:build unix

package main

import (
	"syscall"
	"time"
)

// processCPU returns the CPU time that this process has used, in user and system mode.
func processCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
