package main

import "time"

// Processes on one machine share the wall clock. Each reads it once, and then goes on
// by its monotonic clock.
var began = time.Now()

// now is µs since the Unix epoch.
func now() int64 { return micros(time.Now()) }

func micros(t time.Time) int64 { return began.UnixMicro() + t.Sub(began).Microseconds() }
