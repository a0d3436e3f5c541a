//go:build race

package faults

// raceDetector says that the tests take many times as long as they should.
const raceDetector = true
