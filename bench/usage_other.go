//go:build !unix

package main

import "time"

// processCPU returns 0, because the CPU time is not known here. The column then shows 0.
func processCPU() time.Duration { return 0 }
