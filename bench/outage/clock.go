package main

import "time"

// Processes on one machine share the wall clock. Each process reads it once, and then uses its monotonic clock.
var began = time.Now()

// now returns the time in µs since the Unix epoch.
func now() int64 { return micros(time.Now()) }

func micros(t time.Time) int64 { return began.UnixMicro() + t.Sub(began).Microseconds() }
