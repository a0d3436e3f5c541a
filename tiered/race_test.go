//go:build race

package tiered

const raceDetector = true
